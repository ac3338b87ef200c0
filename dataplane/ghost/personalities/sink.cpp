// sink: takes everything. The private data of its REP tells where and how: address (8 bytes), rkey (4) and length (8)
// of a region that the peer may write, read and do atomics on, big-endian.
#include <array>

#include "ghost/personalities/make.hpp"
#include "ghost/personalities/slots.hpp"
#include "ghost/personalities/wire_types.hpp"

namespace nbx::ghost {

namespace {

class SinkSession final : public Session {
 public:
  SinkSession(const Context& context, const SinkOptions& options)
      : Session(context),
        region_(context.transport.memory(context.ghost), 1, static_cast<std::uint32_t>(options.region_bytes),
                options.backing,
                rdma::access::local_write | rdma::access::remote_write | rdma::access::remote_read |
                    rdma::access::remote_atomic) {
    advert_.addr = region_.addr();
    advert_.rkey = region_.key();
    advert_.length = options.region_bytes;
  }

  void opened(ConstBytes, Instant) override {}
  [[nodiscard]] ConstBytes private_data() const override { return std::as_bytes(std::span{&advert_, 1}); }

 private:
  static constexpr std::uint32_t receives = 256;

  void adjust(rdma::QpAttr& attr) const override {
    attr.access = rdma::access::remote_write | rdma::access::remote_read | rdma::access::remote_atomic;
    attr.max_recv_wr = receives;
  }
  void post_receives() override {
    for (std::uint32_t i = 0; i < receives; ++i) {
      post_recv(i, region_.sge(0, region_.size()));
    }
  }
  void received(const rdma::Completion& message, Instant) override {
    post_recv(message.wr_id, region_.sge(0, region_.size()));
  }
  void sent(const rdma::Completion&, Instant) override {}

  Slots region_;
  RegionAdvert advert_{};
};

}  // namespace

std::unique_ptr<Personality> make(const SinkOptions& options, const Context& context) {
  return std::make_unique<Service>(context, options.port,
                                   [options](const Context& c) { return std::make_unique<SinkSession>(c, options); });
}

}  // namespace nbx::ghost
