// ARP, neighbour discovery and ping for ghosts: answering for their addresses, and finding the MAC of a peer that a
// ghost wants to talk to. RFC 826, 4861, 792, 4443.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "frame/pool.hpp"
#include "ghost/ghost.hpp"
#include "timer/wheel.hpp"

namespace nbx::ghost {

class Neighbours {
 public:
  /// Frames that ghosts send are appended to `out`, frame.ghost and frame.parsed set.
  Neighbours(const Directory& directory, FramePool& pool, Wheel& wheel, Counters& counters, FrameList& out);
  ~Neighbours();
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;
  Neighbours(Neighbours&&) = delete;
  Neighbours& operator=(Neighbours&&) = delete;

  /// Answers an ARP, ND or echo request for a ghost and learns from answers. Does not take ownership. True when the
  /// frame was a question to a ghost and needs nothing more; false when the kernel should see it too (an answer).
  bool receive(const Frame& frame, Instant now) noexcept;

  /// The MAC of `peer`, if known; ghosts know each other.
  [[nodiscard]] std::optional<Mac> lookup(const IpAddress& peer) const noexcept;
  using Resolved = std::function<void(std::optional<Mac>, Instant)>;
  /// Asks for `peer` on behalf of `ghost`; calls back once, at the latest after the last retry (nullopt). Control path.
  void resolve(GhostId ghost, const IpAddress& peer, Resolved done, Instant now);
  /// Tells everybody the MAC of every address of `ghost`: RFC 5227 section 3, RFC 4861 7.2.6.
  void announce(GhostId ghost, Instant now) noexcept;
  void learn(const IpAddress& peer, const Mac& mac) noexcept;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace nbx::ghost
