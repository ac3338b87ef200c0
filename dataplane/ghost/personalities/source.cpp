// source: a ghost that calls a real node and sends, `depth` messages at a time. For RDMA operations the target is what
// the file says, or what the peer's REP tells in the form that sink uses.
#include <algorithm>

#include "ghost/personalities/make.hpp"
#include "ghost/personalities/slots.hpp"
#include "ghost/personalities/wire_types.hpp"

namespace nbx::ghost {

namespace {

class SourceSession final : public Session {
 public:
  SourceSession(const Context& context, const SourceOptions& options)
      : Session(context),
        options_(options),
        data_(context.transport.memory(context.ghost), 1, std::max<std::uint32_t>(options.message_size, 8),
              rdma::Backing::pattern),
        remote_addr_(options.remote_addr),
        rkey_(options.rkey) {}

  void opened(ConstBytes peer_private_data, Instant now) override {
    const auto* advert = overlay<RegionAdvert>(peer_private_data);
    if (rkey_ == 0 && advert != nullptr) {
      remote_addr_ = advert->addr.value();
      rkey_ = advert->rkey.value();
    }
    for (std::uint32_t i = 0; i < options_.depth; ++i) {
      send_next(now);
    }
  }
  [[nodiscard]] bool succeeded() const override {
    return Session::succeeded() && (options_.count == 0 || completed_ == options_.count);
  }

 private:
  void adjust(rdma::QpAttr& attr) const override { attr.max_send_wr = std::max<std::uint32_t>(options_.depth, 1); }
  void post_receives() override {}
  void received(const rdma::Completion&, Instant) override {}
  void sent(const rdma::Completion&, Instant now) override {
    ++completed_;
    if (options_.count != 0 && completed_ == options_.count) {
      disconnect(now);
    } else {
      send_next(now);
    }
  }
  void send_next(Instant now) {
    if (options_.count != 0 && posted_ == options_.count) {
      return;
    }
    const bool atomic = options_.operation == rdma::WrOpcode::atomic_cmp_and_swp ||
                        options_.operation == rdma::WrOpcode::atomic_fetch_and_add;
    const bool posted = post_send({.wr_id = posted_,
                                   .opcode = options_.operation,
                                   .local = data_.sge(0, atomic ? 8 : options_.message_size),
                                   .remote_addr = remote_addr_,
                                   .rkey = rkey_,
                                   .imm_data = static_cast<std::uint32_t>(posted_),
                                   .compare_add = 1},
                                  now);
    posted_ += posted ? 1 : 0;
  }

  SourceOptions options_;
  Slots data_;
  std::uint64_t remote_addr_;
  std::uint32_t rkey_;
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
};

}  // namespace

std::unique_ptr<Personality> make(const SourceOptions& options, const Context& context) {
  return std::make_unique<Caller>(context, options.connect, options.port, options.start,
                                  [options](const Context& c) { return std::make_unique<SourceSession>(c, options); });
}

}  // namespace nbx::ghost
