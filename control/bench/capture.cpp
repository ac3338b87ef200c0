// Stage capture: what a running capture adds to a packet: its pcapng block formatted into the ring of the worker. The
// writer's side empties the ring outside the measured time.
#include <stdexcept>

#include "bench/meter.hpp"
#include "bench/packets.hpp"
#include "capture/tap.hpp"
#include "frame/pool.hpp"

namespace nbx::bench {
namespace {

class Capture final : public Case {
 public:
  explicit Capture(std::uint32_t snaplen)
      : Case({.stage = "capture",
              .variant = snaplen == full ? "whole packets" : "snaplen " + std::to_string(snaplen),
              .bytes = payload,
              .wire_bytes = wire_bytes(payload)}) {
    const wire::Encapsulation to_ghost{node_to_ghost()};
    while (frames_.size() < packets) {
      Frame& frame = *pool_.alloc(to_ghost.frame_size(payload));
      to_ghost.begin(frame.bytes(), {.opcode = wire::Opcode::rc_rdma_write_middle}, payload);
      frames_.push_back(&frame);
    }
    if (!tap_.start(snaplen)) {
      throw std::runtime_error("the tap did not start");
    }
  }
  ~Capture() override {
    for (Frame* frame : frames_) {
      pool_.free(*frame);
    }
  }

  std::uint64_t round(Stopwatch& watch) override {
    watch.start();
    for (const Frame* frame : frames_) {
      now_ = now_ + std::chrono::nanoseconds{80};
      tap_.record(*frame, capture::Direction::inbound, now_);
    }
    watch.stop();
    for (ConstBytes block = tap_.ring().front(); !block.empty(); block = tap_.ring().front()) {
      bytes_ += block.size();
      tap_.ring().pop(block);
    }
    return packets;
  }
  [[nodiscard]] std::uint64_t checksum() const override {
    if (tap_.lost() != 0) {
      throw std::runtime_error("the tap lost records of the bench");
    }
    return bytes_;
  }

  static constexpr std::uint32_t full = 65'535;

 private:
  static constexpr unsigned payload = 4096;
  static constexpr unsigned packets = 256;
  SlabSource slab_{512, 4200};
  FramePool pool_{slab_};
  Counters counters_;
  capture::Tap tap_{{}, counters_};
  std::vector<Frame*> frames_;
  Instant now_{};
  std::uint64_t bytes_ = 0;
};

}  // namespace

Cases capture_cases() {
  Cases cases;
  for (const std::uint32_t snaplen : {64U, 128U, Capture::full}) {
    cases.push_back(std::make_unique<Capture>(snaplen));
  }
  return cases;
}

}  // namespace nbx::bench
