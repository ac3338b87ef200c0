#include "fabric/rules.hpp"

#include <algorithm>

#include "base/overloaded.hpp"

namespace nbx::fabric {

Matcher::Matcher(const Match& match)
    : classes_(match.classes),
      any_ghost_(match.ghosts.empty()),
      any_qpn_(!match.dest_qpn.has_value()),
      any_psn_(!match.psn_first.has_value() && !match.psn_last.has_value()),
      dest_qpn_(match.dest_qpn.value_or(Qpn{})),
      nth_(match.nth) {
  narrow_ = !any_ghost_ || !any_qpn_ || !any_psn_;
  for (const GhostId ghost : match.ghosts) {
    const std::size_t word = index(ghost) / 64;
    ghosts_.resize(std::max(ghosts_.size(), word + 1));
    ghosts_[word] |= std::uint64_t{1} << index(ghost) % 64;
  }
  if (!any_psn_) {
    psn_first_ = match.psn_first.value_or(match.psn_last.value_or(Psn{}));
    psn_count_ = ((match.psn_last.value_or(psn_first_).value - psn_first_.value) & mask24) + 1;
  }
}

bool Matcher::accepts_narrow(const wire::Parsed& p, GhostId ghost) const noexcept {
  if (!any_ghost_) {
    const std::size_t word = index(ghost) / 64;
    if (word >= ghosts_.size() || (ghosts_[word] >> index(ghost) % 64 & 1U) == 0) {
      return false;
    }
  }
  if (any_qpn_ && any_psn_) {
    return true;
  }
  return p.kind == wire::FrameKind::roce_v2 && (any_qpn_ || p.dest_qpn == dest_qpn_) &&
         (any_psn_ || ((p.psn.value - psn_first_.value) & mask24) < psn_count_);
}

FrameSelector::FrameSelector(const Selector& selector) : state_(compile(selector)) {}

FrameSelector::State FrameSelector::compile(const Selector& selector) {
  return std::visit(Overloaded{
                        [](const Bernoulli& s) { return State{Chance{s.probability}}; },
                        [](const GilbertElliott& s) {
                          return State{Chain{Chance{s.p}, Chance{s.r}, Chance{s.loss_in_good}, Chance{s.loss_in_bad}}};
                        },
                        [](const EveryNth& s) {
                          return State{Countdown{s.n, s.offset + s.n}};
                        },
                        [](const Listed& s) { return State{Ordinals{s.frames}}; },
                    },
                    selector);
}

bool FrameSelector::selects(Rng& rng) noexcept {
  return std::visit(Overloaded{
                        [&](const Chance& chance) { return chance.draw(rng); },
                        [&](Chain& chain) {
                          // The frame meets the state that the one before it left; then the chain steps.
                          const bool selected = (chain.bad ? chain.select_in_bad : chain.select_in_good).draw(rng);
                          chain.bad ^= (chain.bad ? chain.leave_bad : chain.leave_good).draw(rng);
                          return selected;
                        },
                        [](Countdown& countdown) {
                          if (--countdown.left != 0) {
                            return false;
                          }
                          countdown.left = countdown.period;
                          return true;
                        },
                        [](Ordinals& ordinals) { return ordinals.next_is_listed(); },
                    },
                    state_);
}

}  // namespace nbx::fabric
