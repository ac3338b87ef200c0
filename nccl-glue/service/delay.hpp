// When ghosts are ready and how long a message takes from one ghost to the next. Deterministic: the same seed, rank
// and collective give the same time on every channel.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "nccl-glue/service/options.hpp"

namespace nbx::nccl {

/// A message by its bytes of data, and of lines of LL and LL128 on the wire.
struct MessageSize {
  std::uint64_t wire = 0;
  std::uint64_t data = 0;
};

class DelayModel {
 public:
  virtual ~DelayModel() = default;
  /// From the real rank's call of collective number `sequence` to that of ghost rank `rank`.
  [[nodiscard]] virtual Duration skew(std::int32_t rank, std::int32_t ranks, std::uint64_t sequence) const = 0;
  /// A ghost's work on a message: from when it came to when it is sent on.
  [[nodiscard]] virtual Duration work(const MessageSize& size, bool reduces) const = 0;
  /// From one ghost's send of a message to the next ghost's: the link, and the next ghost's work.
  [[nodiscard]] virtual Duration hop(const MessageSize& size, bool reduces) const = 0;
  /// Whether skew() is the same for all ranks but those in exceptions(): then a run of ghosts needs no list of them.
  [[nodiscard]] virtual bool uniform() const = 0;
  [[nodiscard]] virtual std::vector<std::int32_t> exceptions(std::uint64_t sequence) const = 0;
};

/// An error when the user's library cannot be loaded or has another interface. `path_mtu`: of the packets between
/// ghosts.
Result<std::unique_ptr<DelayModel>> make_delay_model(const DelayOptions& options, std::uint32_t path_mtu,
                                                     std::uint64_t seed);

/// The earliest times at which the last of a run of consecutive ghosts can send, for one collective: the max-plus form
/// of a tandem of equal hops, so that a message through any number of ghosts costs the same. Ghosts are numbered from
/// the end of the run: 0 is the last one. `work` is a ghost's on the message, `hop` is link and work.
class RunReadiness {
 public:
  /// `ranks_from_end[d]` is the rank at distance d from the end of the run, first the last ghost.
  RunReadiness(const DelayModel& model, std::int32_t ranks, std::uint64_t sequence, Instant called,
               const std::function<std::int32_t(std::uint32_t distance)>& rank_at, std::uint32_t length);

  /// When the ghost at `distance` calls the operation.
  [[nodiscard]] Instant called(std::uint32_t distance) const noexcept;
  /// The ghost that calls last, by its distance, and when.
  [[nodiscard]] std::pair<std::uint32_t, Instant> latest() const noexcept;
  /// When a message that arises at distance `distance`, with `hop` per hop, can leave the run.
  [[nodiscard]] Instant own(std::uint32_t distance, Duration work, Duration hop);
  /// When a message that arrived at the run at `arrival` can leave it; `work`: of its first ghost.
  [[nodiscard]] Instant passed(Instant arrival, Duration work, Duration hop);

 private:
  struct Late {
    std::uint32_t distance = 0;
    Instant ready{};
  };
  /// When all ghosts up to `distance` have called, each as far as its distance allows a message to be.
  [[nodiscard]] Instant reached(std::uint32_t distance, Duration hop);
  /// For one hop time: the latest of ready + hop * distance over late_[0..i].
  struct Prefix {
    Duration hop{};
    std::vector<Instant> latest;
  };
  const Prefix& prefix(Duration hop);

  std::uint32_t length_;
  Instant common_{};              // when those not in late_ are ready
  std::vector<Late> late_;        // by rising distance
  std::vector<Prefix> prefixes_;  // an operation has messages of a few sizes only
};

}  // namespace nbx::nccl
