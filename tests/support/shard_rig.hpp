// One shard in virtual time with nothing around it: frames go in as bytes and come out as bytes with their time.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "ghost/streams.hpp"
#include "pipeline/shard.hpp"

namespace nbx::test {

using Bytes = std::vector<std::byte>;

/// A cluster of one port: ghost `g0` at 10.77.0.9 and fd77::9.
inline pipeline::ShardPlan one_ghost_plan() {
  pipeline::ShardPlan plan;
  plan.port_name = "p0";
  plan.profile.name = "ideal";
  pipeline::GhostPlan ghost;
  ghost.identity.name = "g0";
  ghost.identity.mac = *parse_mac("02:00:00:00:00:09");
  ghost.identity.addresses = {{*parse_ip("10.77.0.9"), 24}, {*parse_ip("fd77::9"), 64}};
  plan.ghosts.push_back(ghost);
  return plan;
}

class NullStreams final : public ghost::Streams {
 public:
  void listen(GhostId, std::uint16_t, ghost::StreamUser&) override {}
  ghost::StreamId connect(GhostId, const IpAddress&, std::uint16_t, ghost::StreamUser&) override {
    return ghost::StreamId::none;
  }
  void send(ghost::StreamId, ConstBytes) override {}
  void close(ghost::StreamId) override {}
};

class ShardRig {
 public:
  struct Sent {
    Instant at;
    Bytes bytes;
  };

  explicit ShardRig(const pipeline::ShardPlan& plan, ghost::Streams* streams = nullptr,
                    pipeline::Observer* observer = nullptr)
      : plan_(plan),
        shard_(std::make_unique<pipeline::Shard>(
            plan, pipeline::ShardEnvironment{
                      .frames = &frames_, .counters = &counters, .streams = streams, .observer = observer})) {
    shard_->start(now_);
  }

  pipeline::Shard& shard() { return *shard_; }
  [[nodiscard]] Instant now() const { return now_; }
  [[nodiscard]] std::uint64_t count(Drop d) const { return counters.get(d); }
  [[nodiscard]] std::uint64_t count(Counter c) const { return counters.get(c); }

  void receive(ConstBytes bytes) {
    FrameList burst;
    if (Frame* frame = frame_of(bytes)) {
      burst.push_back(*frame);
    }
    shard_->receive(burst, now_);
    settle();
  }
  /// Lets virtual time pass to `end`, stopping at every deadline.
  void run_until(Instant end) {
    while (shard_->next_deadline() <= end) {
      now_ = std::max(now_, shard_->next_deadline());
      settle();
    }
    now_ = end;
    settle();
  }
  void run_for(Duration d) { run_until(now_ + d); }

  /// What left the port since the last call.
  std::vector<Sent> take_sent() { return std::exchange(sent_, {}); }
  std::vector<Bytes> take_kernel() { return std::exchange(kernel_, {}); }
  /// Hands everything that this shard has for `peer` to `other`, whose port is that one.
  void pass_to(ShardRig& other) {
    FrameList& queue = shard_->to_peer(other.plan_.port);
    while (Frame* frame = queue.pop_front()) {
      if (Frame* copy = other.frame_of(frame->bytes())) {
        copy->parsed = frame->parsed;
        other.shard_->receive_from_peer(*copy, plan_.port, other.now_);
      }
      shard_->release(*frame);
    }
    other.settle();
  }

  /// Ends the shard and answers how many frames it kept.
  std::size_t outstanding_after_end() {
    shard_.reset();
    return frames_.outstanding();
  }

  Counters counters;

 private:
  Frame* frame_of(ConstBytes bytes) {
    Frame* frame = shard_->pool().alloc(bytes.size());
    if (frame != nullptr && !bytes.empty()) {
      std::memcpy(frame->data, bytes.data(), bytes.size());
    }
    return frame;
  }
  void settle() {
    for (int turn = 0; shard_->progress(now_) && turn < 100'000; ++turn) {
      collect();
    }
    collect();
  }
  void collect() {
    while (Frame* frame = shard_->to_port().pop_front()) {
      sent_.push_back({now_, Bytes(frame->data, frame->data + frame->size)});
      shard_->release(*frame);
    }
    while (Frame* frame = shard_->to_kernel().pop_front()) {
      kernel_.emplace_back(frame->data, frame->data + frame->size);
      shard_->release(*frame);
    }
  }

  pipeline::ShardPlan plan_;
  SlabSource frames_{512, 9600};
  Instant now_{};
  std::vector<Sent> sent_;
  std::vector<Bytes> kernel_;
  std::unique_ptr<pipeline::Shard> shard_;
};

}  // namespace nbx::test
