// See impairment.hpp. All that happens to a frame is decided when it is submitted, in the order of the stages; then its
// bytes are changed, and then it waits. Frames of one delay rule keep their order and wait in one FIFO behind one
// timer; only frames that may reorder wait in the wheel on their own.
#include "fabric/impairment.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "fabric/corrupt.hpp"
#include "fabric/jitter.hpp"
#include "fabric/link_clock.hpp"
#include "fabric/rules.hpp"
#include "stats/histogram.hpp"
#include "wire/build.hpp"

namespace nbx::fabric {
namespace {

class LatenessAccount {
 public:
  void record(Duration late) noexcept {
    ++frames_;
    late_frames_ += late > Duration::zero() ? 1 : 0;
    max_ = std::max(max_, late);
    ns_.record(static_cast<std::uint64_t>(late.count()) / 1000);
  }
  [[nodiscard]] Lateness stats() const {
    Lateness s{.frames = frames_,
               .late_frames = late_frames_,
               .median = std::chrono::nanoseconds{ns_.quantile(0.5)},
               .p99 = std::chrono::nanoseconds{ns_.quantile(0.99)},
               .max = max_,
               .histogram_ns = {}};
    ns_.for_each([&s](std::uint64_t ns, std::uint64_t frames) { s.histogram_ns.emplace_back(ns, frames); });
    return s;
  }

 private:
  std::uint64_t frames_ = 0;
  std::uint64_t late_frames_ = 0;
  Duration max_{};
  Histogram ns_;
};

class DelayAccount {
 public:
  void interrupted(Instant from, Instant until) noexcept {
    gap_from_ = from;
    gap_until_ = until;
  }
  void record(Duration asked, Instant due, Instant now) noexcept {
    asked_min_ = count_ == 0 ? asked : std::min(asked_min_, asked);
    asked_max_ = std::max(asked_max_, asked);
    asked_sum_ps_ += static_cast<std::uint64_t>(asked.count());
    ++count_;
    (gap_from_ <= due && due < gap_until_ ? interrupted_ : undisturbed_).record(now - due);
  }
  [[nodiscard]] DelayStats stats() const {
    return {.frames = count_,
            .asked_min = asked_min_,
            .asked_max = asked_max_,
            .asked_mean_ps = count_ == 0 ? 0 : static_cast<double>(asked_sum_ps_) / static_cast<double>(count_),
            .undisturbed = undisturbed_.stats(),
            .interrupted = interrupted_.stats()};
  }

 private:
  std::uint64_t count_ = 0;
  Duration asked_min_{}, asked_max_{};
  uint128 asked_sum_ps_ = 0;
  Instant gap_from_{}, gap_until_{};
  LatenessAccount undisturbed_, interrupted_;
};

/// Only IP has an ECN field (RFC 3168).
bool can_mark(const wire::Parsed& p, bool force) {
  constexpr unsigned ce = 3;
  const unsigned ecn = p.traffic_class & ce;
  return wire::has_ip(p.kind) && ecn != ce && (ecn != 0 || force);
}

}  // namespace

/// What outlives a profile: the clock of the link, the random streams, the statistics.
class Impairment::State {
 public:
  State(const DirectionSpec& spec, const Rng& rng, FramePool& pool, Wheel& wheel, Counters& counters,
        ImpairmentSink& sink);

  void submit(Frame& frame, GhostId ghost, Instant now) noexcept;
  void replace(const DirectionSpec& spec);
  void use(events::Table* events, Direction direction);
  void change_rate(const RateSpec& rate) noexcept { link_.configure(rate); }
  void take_down(Instant until) noexcept { link_down_until_ = until; }
  void interrupted(Instant from, Instant until) noexcept { delays_.interrupted(from, until); }
  [[nodiscard]] DelayStats delay_stats() const { return delays_.stats(); }

 private:
  class DelayLine;
  class HoldLine;
  class Program;

  /// What is going to be done to the bytes.
  struct Damage {
    std::optional<std::uint32_t> bit;   // flipped
    std::optional<std::uint32_t> byte;  // inverted
    bool repair_icrc = false;

    [[nodiscard]] bool any() const noexcept { return bit || byte; }
  };

  void forward(Frame& frame, const Damage& damage, const events::Verdict& verdict, GhostId ghost, Instant now) noexcept;
  [[nodiscard]] Frame* duplicate(const Frame& frame) noexcept;
  void drop(Frame& frame, Drop why, Instant now) noexcept;
  void apply(Frame& frame, const Damage& damage) noexcept;
  void leave_delay(Frame& frame, Program& program, Instant now) noexcept;
  void release(Frame& frame, Instant now) noexcept { sink_.on_release(frame, now); }
  [[nodiscard]] std::uint64_t waiting() const noexcept;

  FramePool& pool_;
  Wheel& wheel_;
  Counters& counters_;
  ImpairmentSink& sink_;
  // One stream per stage, so that a rule more in one does not reshuffle another.
  Rng loss_rng_, corrupt_rng_, duplicate_rng_, ecn_rng_, delay_rng_, reorder_rng_;
  LinkClock link_;
  Instant link_down_until_{std::numeric_limits<std::int64_t>::min()};
  DelayAccount delays_;
  std::uint64_t passed_ = 0;  // frames that left the delay stage and were not held
  events::Table* events_ = nullptr;
  Direction direction_{};
  std::unique_ptr<Program> program_;
  std::vector<std::unique_ptr<Program>> retired_;  // replaced, with frames that still wait
};

/// A FIFO of frames with ascending release times.
class Impairment::State::DelayLine final : public TimerClient {
 public:
  DelayLine(Program& program, Instant not_before) noexcept : program_(program), last_due_(not_before) {
    timer_.client = this;
  }
  DelayLine(const DelayLine&) = delete;
  DelayLine& operator=(const DelayLine&) = delete;
  DelayLine(DelayLine&&) = delete;
  DelayLine& operator=(DelayLine&&) = delete;
  ~DelayLine();

  /// When a frame that would leave at `due` may leave, behind those before it.
  [[nodiscard]] Instant behind_earlier(Instant due) const noexcept { return std::max(due, last_due_); }
  [[nodiscard]] bool empty() const noexcept { return frames_.empty(); }
  [[nodiscard]] Instant last_due() const noexcept { return last_due_; }
  void push(Frame& frame) noexcept;
  void on_timer(TimerNode& node, Instant now) noexcept override;

 private:
  Program& program_;
  FrameList frames_;
  TimerNode timer_;  // armed for the first frame
  Instant last_due_;
};

/// Frames taken out of the sequence by one reorder rule: due ascends, and so does released_behind.
class Impairment::State::HoldLine final : public TimerClient {
 public:
  HoldLine(Program& program, std::uint32_t distance, Duration hold_max) noexcept
      : program_(program), distance_(distance), hold_max_(hold_max) {
    timer_.client = this;
  }
  HoldLine(const HoldLine&) = delete;
  HoldLine& operator=(const HoldLine&) = delete;
  HoldLine(HoldLine&&) = delete;
  HoldLine& operator=(HoldLine&&) = delete;
  ~HoldLine();

  void hold(Frame& frame, Instant now) noexcept;
  /// Releases the frames that have been passed often enough.
  void release_passed(Instant now) noexcept;
  void on_timer(TimerNode& node, Instant now) noexcept override;

 private:
  void release_first(Instant now) noexcept;
  void arm_for_first() noexcept;

  Program& program_;
  std::uint32_t distance_;
  Duration hold_max_;
  FrameList frames_;
  TimerNode timer_;  // armed for the first frame
};

/// A DirectionSpec in the form that is looked at per frame, and the frames that wait under it.
class Impairment::State::Program final : public TimerClient {
 public:
  struct Corruption {
    FrameSelector select;
    CorruptTarget target;
  };
  struct Marking {
    FrameSelector select;
    bool force;
  };
  struct Delay {
    Duration constant;
    JitterSource jitter;
    DelayLine* line;  // nullptr: may reorder
  };
  struct Reordering {
    FrameSelector select;
    std::uint32_t number;  // from 1
  };

  /// No frame under a rule that keeps order leaves before `not_before`.
  Program(State& owner, const DirectionSpec& spec, Instant not_before);
  /// Makes room for frames that events hold.
  void hold_for(const std::vector<events::Reorder>& events);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  Program(Program&&) = delete;
  Program& operator=(Program&&) = delete;
  ~Program();

  /// A frame that waits alone is due.
  void on_timer(TimerNode& node, Instant now) noexcept override;
  [[nodiscard]] Instant last_due() const noexcept;

  State& state;
  Stage<FrameSelector> loss;
  Stage<Corruption> corrupt;
  Stage<FrameSelector> duplicate;
  Stage<Marking> ecn;
  Stage<Delay> delay;
  Stage<Reordering> reorder;
  std::uint64_t waiting_max;
  std::uint64_t waiting = 0;
  std::uint64_t held = 0;
  std::deque<DelayLine> lines;  // the first is for frames that no delay rule acts on
  std::deque<HoldLine> holds;
  std::uint32_t event_holds = 0;  // how many of `holds` lie before those of events
};

Impairment::State::DelayLine::~DelayLine() {
  program_.state.wheel_.cancel(timer_);
  program_.state.pool_.free_all(frames_);
}

void Impairment::State::DelayLine::push(Frame& frame) noexcept {
  last_due_ = frame.due;
  ++program_.waiting;
  if (frames_.empty()) {
    program_.state.wheel_.arm(timer_, frame.due);
  }
  frames_.push_back(frame);
}

void Impairment::State::DelayLine::on_timer(TimerNode& /*node*/, Instant now) noexcept {
  Wheel& wheel = program_.state.wheel_;
  for (bool more = true; more;) {
    Frame& frame = *frames_.pop_front();
    Frame* next = frames_.front();
    // A late driver finds many frames due: as long as nothing else is due between two of them, the wheel need not say
    // so.
    more = next != nullptr && next->due <= now && next->due < wheel.next_deadline();
    if (next != nullptr && !more) {
      wheel.arm(timer_, next->due);
    }
    if (next != nullptr) {
      __builtin_prefetch(frames_.after(*next));
    }
    --program_.waiting;
    program_.state.leave_delay(frame, program_, now);
  }
}

Impairment::State::HoldLine::~HoldLine() {
  program_.state.wheel_.cancel(timer_);
  program_.state.pool_.free_all(frames_);
}

void Impairment::State::HoldLine::hold(Frame& frame, Instant now) noexcept {
  frame.due = now + hold_max_;
  frame.released_behind = program_.state.passed_ + distance_;
  ++program_.waiting;
  ++program_.held;
  frames_.push_back(frame);
  arm_for_first();
}

void Impairment::State::HoldLine::release_passed(Instant now) noexcept {
  while (!frames_.empty() && frames_.front()->released_behind <= program_.state.passed_) {
    release_first(now);
  }
}

void Impairment::State::HoldLine::on_timer(TimerNode& /*node*/, Instant now) noexcept { release_first(now); }

void Impairment::State::HoldLine::release_first(Instant now) noexcept {
  Frame& frame = *frames_.pop_front();
  frame.due = std::min(frame.due, now);
  arm_for_first();
  --program_.waiting;
  --program_.held;
  program_.state.release(frame, now);
}

void Impairment::State::HoldLine::arm_for_first() noexcept {
  if (frames_.empty()) {
    program_.state.wheel_.cancel(timer_);
  } else if (!timer_.linked() || timer_.due != frames_.front()->due) {
    program_.state.wheel_.arm(timer_, frames_.front()->due);
  }
}

Impairment::State::Program::Program(State& owner, const DirectionSpec& spec, Instant not_before)
    : state(owner), waiting_max(spec.delay_line_frames) {
  for (const LossRule& rule : spec.loss) {
    loss.add(rule.match, FrameSelector{rule.select});
  }
  for (const CorruptRule& rule : spec.corrupt) {
    corrupt.add(rule.match, {FrameSelector{rule.select}, rule.target});
  }
  for (const DuplicateRule& rule : spec.duplicate) {
    duplicate.add(rule.match, FrameSelector{rule.select});
  }
  for (const EcnRule& rule : spec.ecn) {
    ecn.add(rule.match, {FrameSelector{rule.select}, rule.force});
  }
  lines.emplace_back(*this, not_before);
  for (const DelayRule& rule : spec.delay) {
    DelayLine* line = rule.may_reorder ? nullptr : &lines.emplace_back(*this, not_before);
    delay.add(rule.match, {rule.constant, JitterSource{rule.jitter}, line});
  }
  for (const ReorderRule& rule : spec.reorder) {
    holds.emplace_back(*this, rule.distance, rule.hold_max);
    reorder.add(rule.match, {FrameSelector{rule.select}, static_cast<std::uint32_t>(holds.size())});
  }
}

void Impairment::State::Program::hold_for(const std::vector<events::Reorder>& events) {
  event_holds = static_cast<std::uint32_t>(holds.size());
  for (const events::Reorder& each : events) {
    holds.emplace_back(*this, each.distance, each.hold_max);
  }
}

Impairment::State::Program::~Program() {
  List<TimerNode> alone;
  state.wheel_.cancel_all(*this, alone);
  while (TimerNode* node = alone.pop_front()) {
    state.pool_.free(static_cast<Frame&>(*node));
  }
}

void Impairment::State::Program::on_timer(TimerNode& node, Instant now) noexcept {
  --waiting;
  state.leave_delay(static_cast<Frame&>(node), *this, now);
}

Instant Impairment::State::Program::last_due() const noexcept {
  return std::max_element(lines.begin(), lines.end(),
                          [](const DelayLine& a, const DelayLine& b) { return a.last_due() < b.last_due(); })
      ->last_due();
}

Impairment::State::State(const DirectionSpec& spec, const Rng& rng, FramePool& pool, Wheel& wheel, Counters& counters,
                         ImpairmentSink& sink)
    : pool_(pool),
      wheel_(wheel),
      counters_(counters),
      sink_(sink),
      loss_rng_(rng.fork("loss")),
      corrupt_rng_(rng.fork("corrupt")),
      duplicate_rng_(rng.fork("duplicate")),
      ecn_rng_(rng.fork("ecn")),
      delay_rng_(rng.fork("delay")),
      reorder_rng_(rng.fork("reorder")),
      program_(std::make_unique<Program>(*this, spec, Instant{std::numeric_limits<std::int64_t>::min()})) {
  link_.configure(spec.rate);
}

void Impairment::State::replace(const DirectionSpec& spec) {
  std::erase_if(retired_, [](const auto& program) { return program->waiting == 0; });
  auto next = std::make_unique<Program>(*this, spec, program_->last_due());
  if (program_->waiting != 0) {
    retired_.push_back(std::move(program_));
  }
  program_ = std::move(next);
  link_.configure(spec.rate);
}

void Impairment::State::use(events::Table* events, Direction direction) {
  events_ = events;
  direction_ = direction;
  if (events != nullptr) {
    program_->hold_for(events->holds());
  }
}

void Impairment::State::submit(Frame& frame, GhostId ghost, Instant now) noexcept {
  frame.treatment = {};
  const wire::Parsed& p = frame.parsed;
  if (now < link_down_until_) {
    drop(frame, Drop::link_down, now);
    return;
  }
  events::Verdict verdict;
  if (events_ != nullptr) {
    verdict = events_->look_at(frame, direction_, ghost, now);
    if (verdict.event != 0) {
      frame.treatment.event = verdict.event;
      frame.treatment.answer = verdict.answer;
      counters_.count(Counter::events_fired);
    }
    if (verdict.drop != Drop::none) {
      drop(frame, verdict.drop, now);
      return;
    }
  }
  if (auto* rule = program_->loss.find(p, ghost); rule != nullptr && rule->action.selects(loss_rng_)) {
    frame.treatment.rule_of(Effect::loss) = rule->number;
    drop(frame, Drop::loss, now);
    return;
  }
  Damage damage;
  if (verdict.corrupt) {
    damage.byte = verdict.corrupt_byte;
    damage.repair_icrc = verdict.repair_icrc;
  }
  if (auto* rule = program_->corrupt.find(p, ghost); rule != nullptr && rule->action.select.selects(corrupt_rng_)) {
    damage.bit = pick_bit(frame, rule->action.target, corrupt_rng_);
    frame.treatment.rule_of(Effect::corrupt) = rule->number;
  }
  Frame* copy = nullptr;
  if (auto* rule = program_->duplicate.find(p, ghost); rule != nullptr && rule->action.selects(duplicate_rng_)) {
    frame.treatment.rule_of(Effect::duplicate) = rule->number;
    copy = duplicate(frame);
  } else if (verdict.duplicate) {
    copy = duplicate(frame);
  }
  forward(frame, damage, verdict, ghost, now);
  if (copy != nullptr) {
    forward(*copy, damage, verdict, ghost, now);
  }
}

/// The stages behind duplication, which a copy passes on its own.
void Impairment::State::forward(Frame& frame, const Damage& damage, const events::Verdict& verdict, GhostId ghost,
                                Instant now) noexcept {
  Program& program = *program_;
  const wire::Parsed& p = frame.parsed;
  frame.treatment.corrupted = damage.any();
  if (auto* rule = program.ecn.find(p, ghost); rule != nullptr && rule->action.select.selects(ecn_rng_)) {
    frame.treatment.ecn_marked = can_mark(p, rule->action.force);
    frame.treatment.rule_of(Effect::ecn) = rule->number;
  }
  if (verdict.mark) {
    frame.treatment.ecn_marked = frame.treatment.ecn_marked || can_mark(p, verdict.force_mark);
  }
  Instant due = now;
  if (link_.limited()) {
    const Instant start = link_.idle_from(now);
    const std::optional<Instant> sent = link_.offer(frame.size, now);
    if (!sent) {
      drop(frame, Drop::queue_full, now);
      return;
    }
    due = *sent;
    frame.treatment.on_link = due - start;
  }
  DelayLine* line = &program.lines.front();
  if (auto* rule = program.delay.find(p, ghost); rule != nullptr) {
    Program::Delay& delay = rule->action;
    frame.treatment.delay = std::max(delay.constant + delay.jitter.draw(delay_rng_), Duration::zero());
    frame.treatment.rule_of(Effect::delay) = rule->number;
    due = due + frame.treatment.delay;
    line = delay.line;
  }
  if (verdict.delay != Duration::zero()) {  // on a way of its own: what follows is not held back
    frame.treatment.delay += verdict.delay;
    due = due + verdict.delay;
    line = nullptr;
  }
  frame.reorder_rule = 0;
  if (verdict.hold != 0) {
    frame.reorder_rule = program.event_holds + verdict.hold;
    frame.treatment.reordered = true;
  }
  if (auto* rule = program.reorder.find(p, ghost); rule != nullptr && rule->action.select.selects(reorder_rng_)) {
    frame.reorder_rule = rule->action.number;
    frame.treatment.rule_of(Effect::reorder) = rule->number;
    frame.treatment.reordered = true;
  }
  frame.due = line == nullptr ? due : line->behind_earlier(due);
  const bool at_once = frame.due <= now && (line == nullptr || line->empty());
  if ((!at_once || frame.reorder_rule != 0) && waiting() >= program.waiting_max) {
    drop(frame, Drop::delay_line_full, now);
    return;
  }
  sink_.on_decided(frame, now);
  apply(frame, damage);
  if (at_once) {
    leave_delay(frame, program, now);
  } else if (line != nullptr) {
    line->push(frame);
  } else {
    ++program.waiting;
    frame.client = &program;
    wheel_.arm(frame, frame.due);
  }
}

Frame* Impairment::State::duplicate(const Frame& frame) noexcept {
  Frame* copy = pool_.alloc(frame.size);
  if (copy == nullptr) {
    counters_.count(Drop::frame_pool_empty);
    return nullptr;
  }
  std::memcpy(copy->data, frame.data, frame.size);
  copy->arrival = frame.arrival;
  copy->ghost = frame.ghost;
  copy->parsed = frame.parsed;
  copy->treatment = frame.treatment;
  copy->treatment.duplicate = true;
  counters_.count(Counter::impair_duplicated);
  return copy;
}

void Impairment::State::drop(Frame& frame, Drop why, Instant now) noexcept {
  frame.treatment = {.dropped = why,
                     .duplicate = frame.treatment.duplicate,
                     .event = frame.treatment.event,
                     .rule = frame.treatment.rule};
  counters_.count(why);
  sink_.on_drop(frame, now);
  pool_.free(frame);
}

void Impairment::State::apply(Frame& frame, const Damage& damage) noexcept {
  const Treatment& t = frame.treatment;
  if (damage.byte) {
    frame.data[*damage.byte] = ~frame.data[*damage.byte];
    if (damage.repair_icrc) {
      repair_icrc(frame);
    }
  }
  if (damage.bit) {
    flip_bit(frame, *damage.bit);
  }
  if (damage.any()) {
    counters_.count(Counter::impair_corrupted);
  }
  if (t.ecn_marked) {
    wire::mark_congestion(frame.bytes(), frame.parsed.l3_offset, frame.parsed.ipv6);
    frame.parsed.traffic_class |= 3U;
    counters_.count(Counter::impair_ecn_marked);
  }
  if (t.delay != Duration::zero()) {
    counters_.count(Counter::impair_delayed);
  }
  if (t.reordered) {
    counters_.count(Counter::impair_reordered);
  }
}

void Impairment::State::leave_delay(Frame& frame, Program& program, Instant now) noexcept {
  if (frame.treatment.delay != Duration::zero()) {
    delays_.record(frame.treatment.delay, frame.due, now);
  }
  if (frame.reorder_rule != 0) {
    program.holds[frame.reorder_rule - 1].hold(frame, now);
    return;
  }
  ++passed_;
  release(frame, now);
  const auto release_passed = [now](Program& p) {
    if (p.held != 0) {
      std::for_each(p.holds.begin(), p.holds.end(), [now](HoldLine& line) { line.release_passed(now); });
    }
  };
  release_passed(*program_);
  std::for_each(retired_.begin(), retired_.end(), [&](const auto& p) { release_passed(*p); });
}

std::uint64_t Impairment::State::waiting() const noexcept {
  std::uint64_t n = program_->waiting;
  for (const auto& program : retired_) {
    n += program->waiting;
  }
  return n;
}

Impairment::Impairment(const DirectionSpec& spec, Rng rng, FramePool& pool, Wheel& wheel, Counters& counters,
                       ImpairmentSink& sink)
    : state_(std::make_unique<State>(spec, rng, pool, wheel, counters, sink)) {}

Impairment::~Impairment() = default;

void Impairment::submit(Frame& frame, GhostId ghost, Instant now) noexcept { state_->submit(frame, ghost, now); }

void Impairment::replace(const DirectionSpec& spec) { state_->replace(spec); }

void Impairment::change_rate(const RateSpec& rate) noexcept { state_->change_rate(rate); }

void Impairment::use(events::Table* events, Direction direction) { state_->use(events, direction); }

void Impairment::take_down(Instant until) noexcept { state_->take_down(until); }

void Impairment::interrupted(Instant from, Instant until) noexcept { state_->interrupted(from, until); }

DelayStats Impairment::delay_stats() const { return state_->delay_stats(); }

}  // namespace nbx::fabric
