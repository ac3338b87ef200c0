// What an emulated network says of itself when it is asked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "switching/pause_track.hpp"
#include "switching/slow_receiver.hpp"

namespace nbx::pipeline {

struct NetworkReport {
  /// Of a switch's port that was ever in a storm.
  struct Watchdog {
    std::string at;
    std::uint64_t detected = 0;
    std::uint64_t restored = 0;
  };

  struct Receiver {
    std::string at;
    switching::SlowReceiverCounters counters;
    std::uint64_t pauses = 0;
  };
  /// Frames that the network counts to one priority, and the real node or the ghost's own sending to another.
  struct ClassDifference {
    bool from_node = false;
    bool of_node = false;  // false: `other` is the ghost's
    unsigned network = 0;
    unsigned other = 0;
    std::uint64_t frames = 0;
  };

  /// A real node at its cable.
  struct Node {
    std::string port;
    switching::PauseTracks to_node;  // the frames that the port sent
    switching::PauseTracks from_node;
    std::vector<ClassDifference> classes;
  };

  std::vector<Node> nodes;  // by port
  std::vector<Watchdog> watchdogs;
  std::vector<Receiver> receivers;
  /// Over all switches, by priority.
  struct Queues {
    unsigned priority = 0;
    std::uint64_t admitted = 0;
    std::uint64_t marked = 0;
    std::uint64_t dropped = 0;
    std::uint64_t peak_bytes = 0;  // of the queue that was fullest
    std::string peak_at;
    std::uint64_t pauses = 0;  // frames that switches obeyed: from each other and from receivers
    Duration paused{};         // of all ports together
  };
  std::vector<Queues> queues;  // that had a frame
  std::uint64_t xoffs = 0;     // times that a switch stopped a priority of a peer
  std::string deadlock;        // the cycle of queues; empty: none now
};

}  // namespace nbx::pipeline
