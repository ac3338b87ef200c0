// Stage network: packets of 4 KiB at 400 Gb/s cross a row of switches; measured is everything that a hop does: arrival,
// route, ramp, admission, queue, line, departure, flight. And what a DCQCN sender adds.
#include "bench/meter.hpp"
#include "bench/packets.hpp"
#include "cc/dcqcn.hpp"
#include "cc/pacer.hpp"
#include "virtual_time/sources.hpp"
#include "virtual_time/world.hpp"

namespace nbx::bench {
namespace {

using namespace std::chrono_literals;
namespace vt = virtual_time;

constexpr unsigned payload = 4096;

vt::WorldSpec row(std::uint32_t switches, const switching::CableSpec& cable) {
  vt::WorldSpec spec;
  spec.packets = 100'000;
  for (std::uint32_t s = 0; s < switches; ++s) {
    spec.topology.add_switch("s" + std::to_string(s));
    if (s != 0) {
      spec.topology.connect(s - 1, s, cable);
    }
  }
  spec.topology.connect_host(spec.topology.add_host("from"), 0, cable);
  spec.topology.connect_host(spec.topology.add_host("to"), switches - 1, cable);
  spec.network.switches.buffer.size_bytes = 32'000'000;
  spec.network.switches.buffer.priority[3] = {.lossless = true, .headroom_bytes = 1'000'000};
  spec.network.switches.ecn[3] = {true, 400'000, 1'600'000, 200'000, 0};
  return spec;
}

/// `flows` flows fill the row to 80 %.
class Hops final : public Case {
 public:
  Hops(std::uint32_t hops, std::uint32_t flows)
      : Case({.stage = "network",
              .variant = std::to_string(hops) + (hops == 1 ? " hop" : " hops"),
              .burst = 1,
              .bytes = payload,
              .wire_bytes = wire_bytes(payload),
              .qps = flows}),
        world_(row(hops, cable)) {
    const Duration interval = serialize_time_ceil(payload + 24, cable.rate) * 10 / 8 * flows;
    for (std::uint32_t f = 0; f < flows; ++f) {
      flows_.push_back(&world_.add<vt::OpenLoopFlow>(vt::FlowSpec{.source = 0,
                                                                  .destination = 1,
                                                                  .packet_bytes = payload,
                                                                  .hash = f,
                                                                  .start = Instant{} + interval * f / flows},
                                                     vt::ArrivalSpec{.interval = interval}));
    }
    world_.run(Instant{} + interval * 2);
  }

  std::uint64_t round(Stopwatch& watch) override {
    const std::uint64_t before = checksum();
    watch.start();
    world_.run(world_.now() + 100us);
    watch.stop();
    return checksum() - before;
  }
  [[nodiscard]] std::uint64_t checksum() const override {
    std::uint64_t delivered = 0;
    for (const vt::Flow* flow : flows_) {
      delivered += flow->stats().delivered;
    }
    return delivered;
  }

 private:
  static constexpr switching::CableSpec cable{BitRate::gbps(400), 1us};
  vt::World world_;
  std::vector<vt::Flow*> flows_;
};

/// Timers made up for, byte counter, pacer. A CNP every 100 packets.
class DcqcnSender final : public Case {
 public:
  explicit DcqcnSender(unsigned flows)
      : Case({.stage = "dcqcn sender", .qps = flows}), flows_(flows, Sender{cc::DcqcnParams{}}) {}

  std::uint64_t round(Stopwatch& watch) override {
    constexpr unsigned packets = 4096;
    watch.start();
    for (unsigned i = 0; i < packets; ++i) {
      Sender& s = flows_[n_ % flows_.size()];
      now_ = now_ + 82ns;
      if (++n_ % 100 == 0) {
        s.rp.on_cnp(now_);
      }
      s.rp.on_sent(payload, now_);
      s.pacer.set_rate(s.rp.current_rate(), now_);
      s.pacer.sent(payload, now_);
      sum_ += static_cast<std::uint64_t>((s.pacer.ready_at() - Instant{}).count());
    }
    watch.stop();
    return packets;
  }
  [[nodiscard]] std::uint64_t checksum() const override { return sum_; }

 private:
  struct Sender {
    explicit Sender(const cc::DcqcnParams& p) : rp(p, BitRate::gbps(400)), pacer(BitRate::gbps(400), 65'536) {}
    cc::ReactionPoint rp;
    cc::Pacer pacer;
  };
  std::vector<Sender> flows_;
  Instant now_{};
  std::uint64_t n_ = 0;
  std::uint64_t sum_ = 0;
};

}  // namespace

Cases network_cases() {
  Cases cases;
  for (const auto& [hops, flows] : {std::pair{1U, 1U}, {2U, 1U}, {4U, 1U}, {8U, 1U}, {4U, 100'000U}}) {
    cases.push_back(std::make_unique<Hops>(hops, flows));
  }
  for (const unsigned flows : {1U, 1000U, 100'000U}) {
    cases.push_back(std::make_unique<DcqcnSender>(flows));
  }
  return cases;
}

}  // namespace nbx::bench
