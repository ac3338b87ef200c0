// DCQCN's reaction point: the rate of one sending queue pair (Zhu et al., "Congestion Control for Large-Scale RDMA
// Deployments", SIGCOMM 2015, section 5.2). Integers only; rates are whole bits per second, alpha has 30 bits.
//
//   CNP --> cut: R_T = R_C, R_C -= R_C alpha/2, then alpha up; stages and byte counter to zero, timer restarted
//   timer, byte counter --> increase: R_C = (R_T + R_C) / 2, R_T before that
//       unchanged     while both have fired less than F times since the cut    (fast recovery)
//       + R_AI        then                                                      (additive increase)
//       + R_HAI       when both have fired more than F times                    (hyper increase)
//   alpha timer --> alpha down
//
// The timers need no timer: advance() makes up for what was due since, in order. At one instant alpha moves first,
// then comes the cut that rp_rate_reduce_monitor_period put off, then the increase.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "cc/params.hpp"

namespace nbx::cc {

enum class Stage : std::uint8_t { line_rate, fast_recovery, additive_increase, hyper_increase };

enum class Cause : std::uint8_t { cut, alpha_update, rate_timer, byte_counter };

[[nodiscard]] const char* name(Stage stage);
[[nodiscard]] const char* name(Cause cause);

/// What a reaction point did and what it holds afterwards.
struct DcqcnStep {
  Instant time{};
  Cause cause{};
  Stage stage{};
  std::uint32_t alpha = 0;  // of alpha_one
  BitRate target{};
  BitRate current{};
};

class DcqcnTrace {
 public:
  virtual void on_step(const DcqcnStep& step) noexcept = 0;

 protected:
  ~DcqcnTrace() = default;
};

inline constexpr std::uint32_t alpha_one = 1U << 30U;

class ReactionPoint {
 public:
  /// `params` is shared by many and outlives them. Starts at line rate, as a queue pair does.
  ReactionPoint(const DcqcnParams& params, BitRate line) noexcept;

  void on_cnp(Instant now) noexcept;
  /// `bytes` went out: feeds the byte counter.
  void on_sent(std::uint32_t bytes, Instant now) noexcept;
  /// Makes up for every timer that was due at or before `now`.
  void advance(Instant now) noexcept;
  /// When the rate or alpha will change by itself. Only a driver that wants each step in its time needs it.
  [[nodiscard]] Instant next_deadline() const noexcept;

  [[nodiscard]] BitRate current_rate() const noexcept { return current_; }
  [[nodiscard]] BitRate target_rate() const noexcept { return target_; }
  [[nodiscard]] std::uint32_t alpha() const noexcept { return alpha_; }
  [[nodiscard]] Stage stage() const noexcept;
  /// nullptr: none. `trace` outlives this.
  void set_trace(DcqcnTrace* trace) noexcept { trace_ = trace; }

 private:
  [[nodiscard]] bool limited() const noexcept { return current_ < limit_; }
  [[nodiscard]] Instant cut_due() const noexcept { return cut_put_off_ ? cut_allowed_at_ : Instant::never(); }
  void cut(Instant now) noexcept;
  void restart(Instant now) noexcept;
  void increase(Cause cause, Instant now) noexcept;
  void raise_alpha() noexcept;
  void lower_alpha() noexcept;
  void update_alpha(Instant now) noexcept;
  void record(Cause cause, Instant now) const noexcept;

  const DcqcnParams* params_;
  BitRate limit_;
  BitRate target_;
  BitRate current_;
  Instant alpha_due_ = Instant::never();
  Instant rate_due_ = Instant::never();
  Instant cut_allowed_at_{std::numeric_limits<std::int64_t>::min()};
  std::uint64_t bytes_ = 0;  // since the byte counter fired last
  std::uint32_t alpha_;
  std::uint32_t time_stage_ = 0;  // increases by the timer since the cut
  std::uint32_t byte_stage_ = 0;
  bool had_cnp_ = false;
  bool cnp_in_period_ = false;
  bool cut_put_off_ = false;
  DcqcnTrace* trace_ = nullptr;
};

}  // namespace nbx::cc
