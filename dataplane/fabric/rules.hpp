// The rules of a profile in the form that is looked at per frame: matches as masks, selectors with their state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "base/ordinals.hpp"
#include "base/rng.hpp"
#include "fabric/spec.hpp"
#include "wire/parse.hpp"

namespace nbx::fabric {

class Matcher {
 public:
  explicit Matcher(const Match& match);

  /// Whether the frame is accepted; advances the count behind Match::nth.
  bool accepts(const wire::Parsed& p, GhostId ghost) noexcept {
    if ((classes_ >> static_cast<unsigned>(p.op_class) & 1U) == 0) {
      return false;
    }
    if (narrow_ && !accepts_narrow(p, ghost)) {
      return false;
    }
    return nth_.empty() || nth_.next_is_listed();
  }

 private:
  [[nodiscard]] bool accepts_narrow(const wire::Parsed& p, GhostId ghost) const noexcept;

  std::uint8_t classes_;
  bool narrow_;  // names ghosts, a queue pair or sequence numbers
  bool any_ghost_;
  bool any_qpn_;
  bool any_psn_;
  Qpn dest_qpn_{};
  Psn psn_first_{};
  std::uint32_t psn_count_ = 0;        // length of the range
  std::vector<std::uint64_t> ghosts_;  // one bit per ghost
  Ordinals nth_;
};

/// Which of the frames that matched a rule acts on.
class FrameSelector {
 public:
  explicit FrameSelector(const Selector& selector);

  bool selects(Rng& rng) noexcept;

 private:
  struct Chain {
    Chance leave_good;
    Chance leave_bad;
    Chance select_in_good;
    Chance select_in_bad;
    bool bad = false;
  };
  struct Countdown {
    std::uint64_t period;
    std::uint64_t left;
  };
  using State = std::variant<Chance, Chain, Countdown, Ordinals>;

  static State compile(const Selector& selector);

  State state_;
};

/// The rules of one stage in the order of the profile.
template <class Action>
class Stage {
 public:
  [[nodiscard]] bool empty() const noexcept { return rules_.empty(); }
  struct Rule {
    Matcher match;
    Action action;
    std::uint8_t number;  // from 1, as in the profile; 255: or more
  };

  void add(const Match& match, Action action) {
    const auto number = static_cast<std::uint8_t>(std::min<std::size_t>(rules_.size() + 1, 255));
    rules_.push_back({Matcher{match}, std::move(action), number});
  }

  /// The first rule that accepts the frame; nullptr when none does.
  [[nodiscard]] Rule* find(const wire::Parsed& p, GhostId ghost) noexcept {
    for (Rule& rule : rules_) {
      if (rule.match.accepts(p, ghost)) {
        return &rule;
      }
    }
    return nullptr;
  }

 private:
  std::vector<Rule> rules_;
};

}  // namespace nbx::fabric
