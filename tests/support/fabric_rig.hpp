// One direction of a port with everything around it: frames by number go in, and what became of them is recorded.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "fabric/impairment.hpp"
#include "frame/pool.hpp"

namespace nbx::fabric {

struct Event {
  std::uint32_t number;
  Instant at;
  Treatment treatment;
  GhostId ghost;
};

class Rig : public ImpairmentSink {
 public:
  explicit Rig(const DirectionSpec& spec, std::uint64_t seed = 1, std::size_t frames = 4096)
      : slab(frames, 2048), impairment(std::make_unique<Impairment>(spec, Rng{seed}, pool, wheel, counters, *this)) {}
  virtual ~Rig() = default;
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;
  Rig(Rig&&) = delete;
  Rig& operator=(Rig&&) = delete;

  /// A RoCE data frame as far as Parsed tells; `number` is written where the destination MAC would be.
  Frame& make(std::uint32_t number, std::uint32_t size = 100) {
    Frame& frame = *pool.alloc(size);
    std::memset(frame.data, 0, size);
    std::memcpy(frame.data, &number, sizeof number);
    frame.parsed.kind = wire::FrameKind::roce_v2;
    frame.parsed.op_class = wire::OpcodeClass::data;
    frame.parsed.l3_offset = 14;
    frame.parsed.l4_offset = 34;
    frame.parsed.bth_offset = 42;
    frame.parsed.payload_offset = 54;
    frame.parsed.payload_size = static_cast<std::uint16_t>(size > 58 ? size - 58 : 0);
    return frame;
  }
  void submit(Frame& frame, GhostId ghost = GhostId{0}) { impairment->submit(frame, ghost, now); }
  void submit(std::uint32_t number) { submit(make(number)); }

  /// Lets time pass as a driver does that wakes at every deadline.
  void run_until(Instant t) {
    while (wheel.next_deadline() <= t && wheel.armed() != 0) {
      now = std::max(now, wheel.next_deadline());
      wheel.run(now);
    }
    now = std::max(now, t);
    wheel.run(now);
  }
  void run_for(Duration d) { run_until(now + d); }

  void on_release(Frame& frame, Instant at) noexcept override {
    released.push_back(event(frame, at));
    inspect(frame);
    pool.free(frame);
  }
  void on_drop(const Frame& frame, Instant at) noexcept override { dropped.push_back(event(frame, at)); }
  void on_decided(const Frame& frame, Instant at) noexcept override {
    decided.push_back(event(frame, at));
    decided_bytes.assign(frame.bytes().begin(), frame.bytes().end());
  }
  /// The bytes of a frame that leaves.
  virtual void inspect(const Frame& /*frame*/) noexcept {}

  [[nodiscard]] std::vector<std::uint32_t> order() const {
    std::vector<std::uint32_t> numbers;
    for (const Event& e : released) {
      numbers.push_back(e.number);
    }
    return numbers;
  }

  SlabSource slab;
  FramePool pool{slab};
  Wheel wheel;
  Counters counters;
  std::unique_ptr<Impairment> impairment;
  Instant now{};
  std::vector<Event> released, dropped, decided;
  std::vector<std::byte> decided_bytes;

 private:
  static Event event(const Frame& frame, Instant at) noexcept {
    std::uint32_t number = 0;
    std::memcpy(&number, frame.data, sizeof number);
    return {number, at, frame.treatment, frame.ghost};
  }
};

}  // namespace nbx::fabric
