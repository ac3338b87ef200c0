// What is in the messages that ghosts send. Where a ghost contributes the identity of a reduction nothing is computed:
// a message that passed is sent on as it came, with new flags where the protocol has them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "nccl-glue/plan/data.hpp"
#include "nccl-glue/plan/lines.hpp"
#include "nccl-glue/service/options.hpp"
#include "nccl-glue/service/transfer.hpp"

namespace nbx::nccl {

/// Where a message's data is in the operation's vector, in bytes.
struct Extent {
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};

/// The same LL lines, and empty ones up to `size` bytes. Needed so rarely that it copies.
Outgoing with_empty_lines(Arena& arena, const Outgoing& outgoing, std::uint64_t size, std::uint64_t step);

/// Makes payloads for the transfers of one world.
class Payloads {
 public:
  Payloads(Arena& arena, const ServiceOptions& options, std::uint32_t ranks)
      : arena_(arena), options_(options), ranks_(ranks) {}
  ~Payloads();
  Payloads(const Payloads&) = delete;
  Payloads& operator=(const Payloads&) = delete;
  Payloads(Payloads&&) = delete;
  Payloads& operator=(Payloads&&) = delete;

  /// Whether ghosts' contributions to reductions are to be computed.
  [[nodiscard]] bool contributes() const noexcept { return options_.contribution != Contribution::identity; }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return ranks_; }

  /// The identity of the operation, as a message.
  Outgoing identity(const Operation& operation, Protocol protocol, std::uint32_t bytes, std::uint64_t step);
  /// What `rank` has to give in all-gather, broadcast and send.
  Outgoing own(const Operation& operation, Protocol protocol, std::int32_t rank, const Extent& extent,
               std::uint64_t step);
  /// A message that came in, as it goes out: `change`, if any, works on its data.
  Outgoing passed(const Message& message, Protocol protocol, std::uint32_t bytes, std::uint64_t step,
                  const std::function<void(MutableBytes)>& change = nullptr);
  /// A copy of a message.
  Outgoing copied(const Message& message, Protocol protocol, std::uint64_t step);

  /// Adds what `rank` contributes to a reduction.
  void contribute(MutableBytes data, const Operation& operation, std::int32_t rank, const Extent& extent) const;
  /// The data of a message.
  [[nodiscard]] std::vector<std::byte> data(const Message& message, Protocol protocol, std::uint32_t bytes) const;
  Outgoing made(ConstBytes data, Protocol protocol, std::uint64_t step);
  void give_back(const Message& message) { arena_.give_back(message.buffer); }

 private:
  using Key = std::tuple<DataType, RedOp>;

  Arena& arena_;
  const ServiceOptions& options_;
  std::uint32_t ranks_;
  std::map<Key, Arena::Buffer> identities_;  // for Simple, where every message of a kind can be the same memory
  std::vector<Arena::Buffer> outgrown_;      // may still be on their way
  std::vector<std::byte> scratch_;
};

}  // namespace nbx::nccl
