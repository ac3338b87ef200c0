// echo: every message goes back as it came. A message longer than a slot is refused by the transport.
#include "ghost/personalities/make.hpp"
#include "ghost/personalities/slots.hpp"

namespace nbx::ghost {

namespace {

class EchoSession final : public Session {
 public:
  explicit EchoSession(const Context& context)
      : Session(context), slots_(context.transport.memory(context.ghost), slot_count, slot_size) {}

  void opened(ConstBytes, Instant) override {}

 private:
  static constexpr std::uint32_t slot_count = 16;
  static constexpr std::uint32_t slot_size = 64 << 10;

  void post_receives() override {
    for (std::uint32_t slot = 0; slot < slot_count; ++slot) {
      post_recv(slot, slots_.sge(slot, slot_size));
    }
  }
  void received(const rdma::Completion& message, Instant now) override {
    post_send({.wr_id = message.wr_id,
               .opcode = message.has_imm ? rdma::WrOpcode::send_with_imm : rdma::WrOpcode::send,
               .local = slots_.sge(message.wr_id, message.byte_len),
               .imm_data = message.imm_data},
              now);
  }
  void sent(const rdma::Completion& message, Instant) override {
    post_recv(message.wr_id, slots_.sge(message.wr_id, slot_size));
  }

  Slots slots_;
};

}  // namespace

std::unique_ptr<Personality> make(const EchoOptions& options, const Context& context) {
  return std::make_unique<Service>(context, options.port,
                                   [](const Context& c) { return std::make_unique<EchoSession>(c); });
}

}  // namespace nbx::ghost
