// DCQCN flows of many hosts to one, in virtual time.
#pragma once

#include <vector>

#include "virtual_time/sources.hpp"
#include "virtual_time/world.hpp"

namespace nbx::virtual_time {

/// `m` hosts send to one, all links alike; ECN and DCQCN of the same preset; lossless, so that what is not slowed down
/// is paused.
class Incast {
 public:
  Incast(const char* preset, std::uint64_t gbps, unsigned m, Duration apart)
      : world_(spec(preset, gbps, m)), params_(*cc::dcqcn_preset(preset)), np_(params_, m, m) {
    for (unsigned i = 0; i < m; ++i) {
      flows_.push_back(&world_.add<DcqcnFlow>(
          FlowSpec{.source = i, .destination = m, .packet_bytes = 1024, .start = Instant{} + i * apart}, params_, np_,
          std::size_t{i}, std::size_t{i}));
    }
  }

  World& world() { return world_; }
  DcqcnFlow& flow(unsigned i) { return *flows_[i]; }
  /// Bytes that each flow has delivered so far.
  [[nodiscard]] std::vector<std::uint64_t> delivered() const {
    std::vector<std::uint64_t> bytes;
    for (const Flow* flow : flows_) {
      bytes.push_back(flow->stats().delivered_bytes);
    }
    return bytes;
  }

 private:
  static constexpr Duration propagation = std::chrono::nanoseconds{500};

  static WorldSpec spec(const char* preset, std::uint64_t gbps, unsigned m) {
    WorldSpec spec;
    spec.packets = 100'000;
    spec.topology = switching::rack(m + 1, {BitRate::gbps(gbps), propagation});
    spec.network.switches.buffer.size_bytes = 32'000'000;
    spec.network.switches.buffer.priority[3] = {
        .lossless = true,
        .alpha_log2 = -3,
        .headroom_bytes = switching::headroom_for(BitRate::gbps(gbps), propagation, Duration::zero(), 1024)};
    spec.network.switches.ecn[3] = *switching::EcnSpec::preset(preset, static_cast<std::uint32_t>(gbps));
    return spec;
  }

  World world_;
  cc::DcqcnParams params_;
  cc::NotificationPoint np_;
  std::vector<DcqcnFlow*> flows_;
};

}  // namespace nbx::virtual_time
