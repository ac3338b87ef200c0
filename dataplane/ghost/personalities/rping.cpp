// rping (librdmacm's RDMA ping) in both roles. One round: the client advertises a buffer, the server READs it and says
// so; the client advertises a second one, the server WRITEs what it read there and says so.
#include <algorithm>
#include <cstring>

#include "ghost/personalities/make.hpp"
#include "ghost/personalities/slots.hpp"
#include "ghost/personalities/wire_types.hpp"

namespace nbx::ghost {

namespace {

constexpr std::uint32_t message_size = sizeof(BufferAdvert);
constexpr std::uint32_t message_slots = 4;
constexpr std::uint32_t data_max = 64 << 10;  // RPING_BUFSIZE is 65536 at most

class RpingBase : public Session {
 protected:
  explicit RpingBase(const Context& context)
      : Session(context), messages_(context.transport.memory(context.ghost), message_slots, message_size) {}

  void post_receives() override {
    for (std::uint64_t slot = 0; slot < send_slot; ++slot) {
      post_recv(slot, messages_.sge(slot, message_size));
    }
  }
  void send_message(const BufferAdvert& message, Instant now) {
    std::memcpy(messages_.bytes(send_slot).data(), &message, message_size);
    post_send({.opcode = rdma::WrOpcode::send, .local = messages_.sge(send_slot, message_size)}, now);
  }
  BufferAdvert take_message(const rdma::Completion& completion) {
    BufferAdvert message{};
    std::memcpy(&message, messages_.bytes(completion.wr_id).data(), message_size);
    post_recv(completion.wr_id, messages_.sge(completion.wr_id, message_size));
    return message;
  }

 private:
  static constexpr std::uint64_t send_slot = message_slots - 1;

  Slots messages_;
};

class RpingServer final : public RpingBase {
 public:
  explicit RpingServer(const Context& context)
      : RpingBase(context), data_(context.transport.memory(context.ghost), 1, data_max) {}
  void opened(ConstBytes, Instant) override {}

 private:
  void received(const rdma::Completion& completion, Instant now) override {
    const BufferAdvert peer = take_message(completion);
    if (completion.byte_len != message_size || peer.size.value() > data_max) {
      fail();
      disconnect(now);
      return;
    }
    const bool read = !data_held_;
    data_held_ = read;
    post_send({.opcode = read ? rdma::WrOpcode::rdma_read : rdma::WrOpcode::rdma_write,
               .local = data_.sge(0, peer.size.value()),
               .remote_addr = peer.addr.value(),
               .rkey = peer.rkey.value()},
              now);
  }
  void sent(const rdma::Completion& completion, Instant now) override {
    if (completion.opcode != rdma::WcOpcode::send) {
      send_message({}, now);  // "go ahead": the contents do not matter
    }
  }

  Slots data_;
  bool data_held_ = false;
};

class RpingClient final : public RpingBase {
 public:
  RpingClient(const Context& context, const RpingOptions& options)
      : RpingBase(context),
        options_(options),
        data_(context.transport.memory(context.ghost), 2, options.size, rdma::Backing::memory,
              rdma::access::local_write | rdma::access::remote_write | rdma::access::remote_read) {}

  void opened(ConstBytes, Instant now) override { begin_round(now); }
  [[nodiscard]] bool succeeded() const override { return Session::succeeded() && rounds_ == options_.count; }

 private:
  enum Buffer : std::uint64_t { ping = 0, pong = 1 };

  void adjust(rdma::QpAttr& attr) const override {
    attr.access = rdma::access::remote_write | rdma::access::remote_read;
  }
  void begin_round(Instant now) {
    const MutableBytes bytes = data_.bytes(ping);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = std::byte(static_cast<std::uint8_t>('A' + (rounds_ + i) % 58));
    }
    advertise(ping, now);
  }
  void advertise(Buffer buffer, Instant now) {
    BufferAdvert advert{};
    advert.addr = data_.addr(buffer);
    advert.rkey = data_.key();
    advert.size = options_.size;
    advertised_ = buffer;
    send_message(advert, now);
  }
  void received(const rdma::Completion& completion, Instant now) override {
    take_message(completion);
    if (advertised_ == ping) {
      advertise(pong, now);
      return;
    }
    if (!std::ranges::equal(data_.bytes(ping), data_.bytes(pong))) {
      fail();
    }
    if (++rounds_ == options_.count) {
      disconnect(now);
    } else {
      begin_round(now);
    }
  }
  void sent(const rdma::Completion&, Instant) override {}

  RpingOptions options_;
  Slots data_;
  Buffer advertised_ = ping;
  std::uint32_t rounds_ = 0;
};

}  // namespace

std::unique_ptr<Personality> make(const RpingOptions& options, const Context& context) {
  if (options.connect.empty()) {
    return std::make_unique<Service>(context, options.port,
                                     [](const Context& c) { return std::make_unique<RpingServer>(c); });
  }
  return std::make_unique<Caller>(context, options.connect, options.port, Duration::zero(),
                                  [options](const Context& c) { return std::make_unique<RpingClient>(c, options); });
}

}  // namespace nbx::ghost
