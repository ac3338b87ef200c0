// source: a ghost that calls a real node and sends, `depth` messages at a time. For RDMA operations the target is what
// the file says, or what the peer's REP tells in the form that sink uses.
#include <algorithm>
#include <numbers>

#include "base/logarithm.hpp"
#include "ghost/personalities/make.hpp"
#include "ghost/personalities/slots.hpp"
#include "ghost/personalities/wire_types.hpp"

namespace nbx::ghost {

namespace {

class SourceSession final : public Session, private TimerClient {
 public:
  SourceSession(const Context& context, const SourceOptions& options)
      : Session(context),
        options_(options),
        rng_(context.rng.fork("messages")),
        data_(context.transport.memory(context.ghost), 1, largest(options), rdma::Backing::pattern),
        remote_addr_(options.remote_addr),
        rkey_(options.rkey) {
    next_.client = this;
    if (!options.rate.unlimited()) {
      const double mean = options.sizes ? traffic::mean_bytes(*options.sizes) : options.message_size;
      mean_gap_ps_ = mean * 8e12 / static_cast<double>(options.rate.bits_per_second);
    }
  }
  ~SourceSession() override { context_.wheel.cancel(next_); }
  SourceSession(const SourceSession&) = delete;
  SourceSession& operator=(const SourceSession&) = delete;
  SourceSession(SourceSession&&) = delete;
  SourceSession& operator=(SourceSession&&) = delete;

  void opened(ConstBytes peer_private_data, Instant now) override {
    const auto* advert = overlay<RegionAdvert>(peer_private_data);
    if (rkey_ == 0 && advert != nullptr) {
      remote_addr_ = advert->addr.value();
      rkey_ = advert->rkey.value();
    }
    if (mean_gap_ps_ != 0) {
      plan_next(now);
    } else {
      wanted_ = options_.count != 0 ? options_.count : UINT64_MAX;
    }
    pump(now);
  }
  [[nodiscard]] bool succeeded() const override {
    return Session::succeeded() && (options_.count == 0 || completed_ == options_.count);
  }

 private:
  void adjust(rdma::QpAttr& attr) const override { attr.max_send_wr = std::max<std::uint32_t>(options_.depth, 1); }
  void post_receives() override {}
  void received(const rdma::Completion&, Instant) override {}
  void sent(const rdma::Completion&, Instant now) override {
    ++completed_;
    if (options_.count != 0 && completed_ == options_.count) {
      disconnect(now);
    } else {
      pump(now);
    }
  }

  /// The next message's time, by the exponential gaps of a Poisson process.
  void plan_next(Instant after) {
    const double gap = -mean_gap_ps_ * std::numbers::ln2 * log2_portable(1 - rng_.unit());
    context_.wheel.arm(next_, after + Duration{static_cast<std::int64_t>(std::min(gap, longest_gap_ps) + 0.5)});
  }
  void on_timer(TimerNode& node, Instant now) noexcept override {
    ++wanted_;
    if (options_.count == 0 || wanted_ < options_.count) {
      plan_next(node.due);
    }
    pump(now);
  }

  /// What is wanted, as far as `depth` allows.
  void pump(Instant now) {
    while (posted_ < wanted_ && posted_ - completed_ < options_.depth) {
      if (!post_next(now)) {
        return;
      }
    }
  }
  bool post_next(Instant now) {
    if (size_ == 0) {
      const bool atomic = options_.operation == rdma::WrOpcode::atomic_cmp_and_swp ||
                          options_.operation == rdma::WrOpcode::atomic_fetch_and_add;
      size_ = atomic           ? 8
              : options_.sizes ? std::min(traffic::size_at(*options_.sizes, rng_.unit()), std::uint64_t{data_.size()})
                               : options_.message_size;
    }
    const bool posted = post_send({.wr_id = posted_,
                                   .opcode = options_.operation,
                                   .local = data_.sge(0, static_cast<std::uint32_t>(size_)),
                                   .remote_addr = remote_addr_,
                                   .rkey = rkey_,
                                   .imm_data = static_cast<std::uint32_t>(posted_),
                                   .compare_add = 1},
                                  now);
    if (posted) {
      ++posted_;
      size_ = 0;
    }
    return posted;
  }

  static std::uint32_t largest(const SourceOptions& options) {
    const std::uint64_t bytes = options.sizes ? traffic::largest(*options.sizes) : options.message_size;
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes, 8, SourceOptions::message_max));
  }
  static constexpr double longest_gap_ps = 1e18;  // eleven days

  SourceOptions options_;
  Rng rng_;
  Slots data_;
  std::uint64_t remote_addr_;
  std::uint32_t rkey_;
  double mean_gap_ps_ = 0;
  TimerNode next_;
  std::uint64_t wanted_ = 0;  // messages that have come
  std::uint64_t size_ = 0;    // of the next one; 0: not drawn
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
};

}  // namespace

std::unique_ptr<Personality> make(const SourceOptions& options, const Context& context) {
  return std::make_unique<Caller>(context, options.connect, options.port, options.start,
                                  [options](const Context& c) { return std::make_unique<SourceSession>(c, options); });
}

}  // namespace nbx::ghost
