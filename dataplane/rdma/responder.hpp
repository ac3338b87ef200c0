// The responder of RC (IBTA volume 1, 9.7.4 and 9.7.5) and UC (9.8.2). Takes request packets, and owes replies: it
// notes what is due and sends it in respond(), in PSN order, so acknowledgements coalesce and READs share the link.
#pragma once

#include <optional>

#include "rdma/core.hpp"

namespace nbx::rdma {

class Responder {
 public:
  explicit Responder(Core& core) noexcept : core_(core) {}

  /// A request packet for a queue pair that may receive; answers why it was not accepted. One that is kept for its turn
  /// is linked when this returns.
  Drop receive(QueuePair& qp, Frame& frame, Instant now) noexcept;
  /// Sends replies that are due, up to one burst. True when some are left.
  bool respond(QueuePair& qp, Instant now) noexcept;

 private:
  /// One request packet, read once.
  struct Request {
    const wire::Parsed& packet;
    const wire::OpcodeTraits& op;
    ConstBytes bytes;
    ConstBytes payload;
    std::uint8_t answer;           // that an event asks for, whatever the request; 0: none
    std::uint64_t address = 0;     // RETH, AtomicETH
    std::uint32_t rkey = 0;        // RETH, AtomicETH
    std::uint32_t dma_length = 0;  // RETH; 8 for atomics
    std::uint64_t swap_or_add = 0;
    std::uint64_t compare = 0;

    explicit Request(const Frame& frame) noexcept;
    [[nodiscard]] bool atomic() const {
      return op.operation == wire::Operation::compare_swap || op.operation == wire::Operation::fetch_add;
    }
    [[nodiscard]] bool reads() const { return op.operation == wire::Operation::rdma_read_request || atomic(); }
    /// This packet takes a receive off the queue, or finds that there is none.
    [[nodiscard]] bool takes_receive() const {
      return op.operation == wire::Operation::send ? op.starts() : op.has(wire::ext::immdt);
    }
  };

  // The chain: each answers Drop::none, or what is wrong with the request.
  using Check = Drop (Responder::*)(QueuePair&, const Request&) noexcept;
  Drop check_sequence(QueuePair& qp, const Request& request) noexcept;
  Drop check_operation(QueuePair& qp, const Request& request) noexcept;
  Drop check_resources(QueuePair& qp, const Request& request) noexcept;
  Drop check_length(QueuePair& qp, const Request& request) noexcept;
  Drop check_access(QueuePair& qp, const Request& request) noexcept;

  Drop receive_reliable(QueuePair& qp, Frame& frame, const Request& request, Instant now) noexcept;
  Drop accept(QueuePair& qp, const Request& request, Instant now) noexcept;
  void catch_up(QueuePair& qp, Instant now) noexcept;
  Drop receive_unreliable(QueuePair& qp, const Request& request, Instant now) noexcept;
  Drop run_checks(QueuePair& qp, const Request& request) noexcept;

  void execute(QueuePair& qp, const Request& request, Instant now) noexcept;
  void execute_send(QueuePair& qp, const Request& request) noexcept;
  void execute_write(QueuePair& qp, const Request& request) noexcept;
  void execute_read(QueuePair& qp, const Request& request, Instant now) noexcept;
  void execute_atomic(QueuePair& qp, const Request& request, Instant now) noexcept;
  void finish_message(QueuePair& qp, const Request& request, Instant now) noexcept;

  Drop ahead(QueuePair& qp, Frame& frame, Instant now) noexcept;
  Drop keep(QueuePair& qp, Frame& frame) noexcept;
  void tell(QueuePair& qp, Psn arrived, Instant now) noexcept;
  Drop duplicate(QueuePair& qp, const Request& request) noexcept;
  void replay(QueuePair& qp, const Request& request, ReadAtomic& read) noexcept;
  Drop answer_event(QueuePair& qp, const Request& request, Instant now) noexcept;
  Drop refuse(QueuePair& qp, Psn psn, Drop why, Instant now) noexcept;

  ReadAtomic& accept_read(QueuePair& qp, const Request& request) noexcept;
  void owe_ack(QueuePair& qp, Psn psn) noexcept;
  void owe_nak(QueuePair& qp, Psn psn, std::uint8_t syndrome, Instant now) noexcept;
  void owe_response(QueuePair& qp, ReadAtomic& read) noexcept;
  [[nodiscard]] std::uint8_t ack_syndrome(QueuePair& qp) const noexcept;
  bool send_response(QueuePair& qp, ReadAtomic& read, Instant now) noexcept;
  bool send_nak(QueuePair& qp, Instant now) noexcept;
  /// `arrived`: that a sequence NAK tells of in place of the MSN.
  bool send_acknowledge(QueuePair& qp, Psn psn, std::uint8_t syndrome, Instant now,
                        std::optional<Psn> arrived = {}) noexcept;

  Core& core_;
};

}  // namespace nbx::rdma
