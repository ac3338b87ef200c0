// One all-gather over the bootstrap ring, as all ghost ranks of a communicator take part in it. Only the streams
// between a ghost and a real rank speak; each carries, per step, the size of a block and the block. From 2.28.7 the
// ring is used both ways: half of the blocks come from either side.
//
// A ghost's block is computed when it is sent, so that the memory does not grow with the ghosts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.hpp"
#include "ghost/streams.hpp"
#include "nccl-glue/wire/bootstrap.hpp"

namespace nbx::nccl {

/// A stream of the ring between a ghost and a real rank that is its neighbour.
struct RingEnd {
  std::int32_t ghost = -1;
  std::int32_t real = -1;
  bool to_next = false;     // the real rank is the ghost's next: the ghost has connected
  bool connecting = false;  // its address is known
  ghost::StreamId stream = ghost::StreamId::none;
  bool left = false;  // closed by the real rank
  Bytes input{};      // not yet read
};

class Gather {
 public:
  struct Spec {
    std::string what;  // for errors
    std::int32_t ranks = 0;
    bool both_ways = true;
    std::size_t block_size = 0;
    std::function<bool(std::int32_t rank)> is_real;
    /// A ghost's block; empty as long as it depends on a block of a real rank that is not known.
    std::function<Bytes(std::int32_t rank)> ghost_block;
  };
  /// `ends` is how many ends the communicator has; they are named by index from here on.
  Gather(Spec spec, std::size_t ends) : spec_(std::move(spec)), progress_(ends) {}

  /// Takes what is there for this gather out of the end's input. An error says what was sent instead.
  std::optional<std::string> read(std::size_t index, RingEnd& end);
  /// Sends what is known and has its turn.
  void write(std::size_t index, const RingEnd& end, const std::function<void(ConstBytes)>& send);

  /// Everything was sent and received at `ends`.
  [[nodiscard]] bool done(const std::vector<RingEnd>& ends) const;
  /// The end at which something is missing.
  [[nodiscard]] bool reads_all(std::size_t index, const RingEnd& end) const;
  [[nodiscard]] const std::unordered_map<std::int32_t, Bytes>& real_blocks() const noexcept { return real_; }
  [[nodiscard]] const std::string& what() const noexcept { return spec_.what; }

 private:
  struct Progress {
    std::int32_t read = 0;
    std::int32_t written = 0;
    bool prefix_written = false;
  };

  [[nodiscard]] std::int32_t reads(const RingEnd& end) const { return end.to_next ? backward() : forward(); }
  [[nodiscard]] std::int32_t writes(const RingEnd& end) const { return end.to_next ? forward() : backward(); }
  /// How many blocks go from each rank to the next, and to the one before.
  [[nodiscard]] std::int32_t forward() const { return spec_.both_ways ? spec_.ranks / 2 : spec_.ranks - 1; }
  [[nodiscard]] std::int32_t backward() const { return spec_.both_ways ? (spec_.ranks - 1) / 2 : 0; }
  [[nodiscard]] std::int32_t block_read(const RingEnd& end, std::int32_t step) const;
  [[nodiscard]] std::int32_t block_written(const RingEnd& end, std::int32_t step) const;
  /// Empty: not known yet.
  [[nodiscard]] Bytes block(std::int32_t rank) const;

  Spec spec_;
  std::vector<Progress> progress_;
  std::unordered_map<std::int32_t, Bytes> real_;
};

}  // namespace nbx::nccl
