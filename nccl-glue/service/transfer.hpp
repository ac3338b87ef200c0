// One operation on one channel as one group of ghosts carries it out: messages come in on some edges, messages go out
// on others. What kind of operation it is only the transfer knows; order, credits and time are the edges'.
#pragma once

#include <cstdint>
#include <string>

#include "nccl-glue/plan/operation.hpp"
#include "nccl-glue/service/arena.hpp"

namespace nbx::nccl {

/// A message that has come in.
struct Message {
  Arena::Buffer buffer;
  std::uint64_t size = 0;
  Instant arrival{};
};

/// A message that goes out. The buffer goes back to the arena when it is acknowledged, unless it is shared.
struct Outgoing {
  Arena::Buffer buffer;
  std::uint64_t size = 0;
  bool shared = false;
};

class Transfer {
 public:
  Transfer() = default;
  virtual ~Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  Transfer(Transfer&&) = delete;
  Transfer& operator=(Transfer&&) = delete;

  struct Offer {
    std::uint64_t room = 0;  // of the clear-to-send
    std::uint64_t size = 0;  // that must come
  };

  // `edge` tells the edges of one direction apart, `i` counts the transfer's messages on it.
  [[nodiscard]] virtual std::uint64_t messages_in(unsigned edge) const = 0;
  [[nodiscard]] virtual std::uint64_t messages_out(unsigned edge) const = 0;
  [[nodiscard]] virtual Offer offer(unsigned edge, std::uint64_t i) const = 0;
  /// When the ghost at the edge has called the operation: it takes nothing before.
  [[nodiscard]] virtual Instant open(unsigned edge) const = 0;
  virtual void received(unsigned edge, std::uint64_t i, const Message& message) = 0;
  /// When outgoing message `i` is ready; Instant::never() while what it depends on has not come.
  [[nodiscard]] virtual Instant ready(unsigned edge, std::uint64_t i) = 0;
  /// The message itself, once it is ready; `step` is the connection's counter. size above buffer.size never.
  [[nodiscard]] virtual Outgoing take(unsigned edge, std::uint64_t i, std::uint64_t step) = 0;

  /// How the connection's step counter moves (the flags of LL and LL128 are made of it).
  struct Steps {
    std::uint32_t per_message = 1;
    std::uint32_t align = 1;  // at the start of the operation
    /// LL: bytes of the message of a step that cleans up (sends_whole_step); 0: there are none.
    std::uint32_t whole = 0;
  };
  [[nodiscard]] virtual Steps steps() const = 0;
  /// Messages a receiver clears ahead.
  [[nodiscard]] virtual unsigned window() const = 0;
};

}  // namespace nbx::nccl
