// Background traffic: flows that begin by chance, cross a network as references to packets that nobody ever fills, and
// are over when the last has come. Who owns the network carries them and says what became of each.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/rng.hpp"
#include "cc/dcqcn.hpp"
#include "cc/pacer.hpp"
#include "stats/histogram.hpp"
#include "timer/wheel.hpp"
#include "traffic/spec.hpp"

namespace nbx::traffic {

/// Whose a packet is; travels with it.
struct Reference {
  std::uint32_t flow = 0;
  std::uint32_t generation = 0;  // of the flow's place, which is used again
  bool notification = false;     // a CNP
};

struct Packet {
  switching::HostId from = 0;
  switching::HostId to = 0;
  std::uint32_t size = 0;  // of the frame, without preamble, FCS and gap
  std::uint32_t hash = 0;  // what ECMP sees
  std::uint8_t priority = 0;
  switching::Ecn ecn = switching::Ecn::not_ect;
  Reference reference{};
};

class Carrier {
 public:
  /// Into the port of packet.from. False: there is no room for a packet now.
  virtual bool carry(const Packet& packet, Instant now) noexcept = 0;
  [[nodiscard]] virtual BitRate port_rate(switching::HostId host) const noexcept = 0;

 protected:
  ~Carrier() = default;
};

struct Stats {
  std::uint64_t flows = 0;          // begun
  std::uint64_t refused = 0;        // not begun: flows_max were under way
  std::uint64_t completed = 0;      // every packet has come
  std::uint64_t damaged = 0;        // over, and a packet was lost
  std::uint64_t offered_bytes = 0;  // these three on the line: of flows begun
  std::uint64_t sent_bytes = 0;
  std::uint64_t delivered_bytes = 0;
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_delivered = 0;
  std::uint64_t packets_dropped = 0;
  std::uint64_t packets_marked = 0;  // delivered with CE
  std::uint64_t cnps = 0;            // that came to a sender
  Duration completion_sum{};         // of completed flows
  Duration completion_max{};
  Histogram completion_ns;
};

class Engine {
 public:
  Engine(std::vector<Spec> specs, Wheel& wheel, Carrier& carrier, const Rng& rng);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  Engine(Engine&&) = delete;
  Engine& operator=(Engine&&) = delete;

  /// The times of the specs count from `now`.
  void start(Instant now);

  // Cold, while it runs.
  /// One more; its times count from `now`. False: one of that name is at work, or as many as there may be are.
  bool add(Spec spec, Instant now);
  /// No flow of the generator begins any more. False: there is none of that name that is not over.
  bool stop(std::string_view name, Instant now) noexcept;

  // What became of a packet.
  /// Its last bit has left its port.
  void on_departed(const Reference& reference, Instant now) noexcept;
  void on_arrived(const Reference& reference, std::uint32_t size, bool congested, Instant now) noexcept;
  /// The network is not entered from here.
  void on_dropped(const Reference& reference, Instant now) noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return generators_.size(); }
  [[nodiscard]] const Spec& spec(std::size_t generator) const noexcept { return generators_[generator]->spec; }
  [[nodiscard]] const Stats& stats(std::size_t generator) const noexcept { return generators_[generator]->stats; }
  static constexpr std::size_t generators_max = 1024;
  /// How long a generator has been at work.
  [[nodiscard]] Duration active(std::size_t generator, Instant now) const noexcept;

 private:
  struct Generator;
  /// A flow under way, or the place for one.
  struct Flow : TimerNode {
    Generator* of = nullptr;
    std::uint32_t index = 0;
    std::uint32_t generation = 0;
    switching::HostId from = 0;
    switching::HostId to = 0;
    std::uint32_t hash = 0;
    std::uint64_t bytes_left = 0;   // to be sent
    std::uint64_t outstanding = 0;  // packets sent and neither come nor lost
    bool lost = false;              // one of them
    bool in_port = false;           // one of them
    Instant begun{};
    Instant next_notification{};  // not before
    std::optional<cc::ReactionPoint> reaction{};
    std::optional<cc::Pacer> pacer{};
  };
  /// The next arrival of one sender, or of all.
  struct Arrival : TimerNode {
    Generator* of = nullptr;
    std::size_t sender = 0;
  };
  struct Generator {
    Generator(Spec what, const Rng& random) : spec(std::move(what)), rng(random) {}

    Spec spec;
    Stats stats;
    Rng rng;
    double mean_gap_ps = 0;
    Instant begins{};
    Instant ends = Instant::never();
    std::size_t turn = 0;                    // of an incast: whose
    std::vector<switching::HostId> partner;  // by sender; of fixed patterns
    std::vector<Arrival> arrivals;
    std::uint32_t under_way = 0;
    bool stopped = false;
  };

  struct ArrivalTimer final : TimerClient {
    explicit ArrivalTimer(Engine& e) : engine(e) {}
    void on_timer(TimerNode& node, Instant /*now*/) noexcept override {
      engine.on_arrival(static_cast<Arrival&>(node));
    }
    Engine& engine;
  };
  struct FlowTimer final : TimerClient {
    explicit FlowTimer(Engine& e) : engine(e) {}
    void on_timer(TimerNode& node, Instant /*now*/) noexcept override {
      engine.try_send(static_cast<Flow&>(node), node.due);
    }
    Engine& engine;
  };

  Generator& make(Spec spec);
  void begin(Generator& generator, Instant now);
  /// Places for the flows of all that run, beside those that are under way of others.
  void make_room();
  void on_arrival(Arrival& arrival) noexcept;
  void plan_next(Arrival& arrival, Instant after) noexcept;
  [[nodiscard]] switching::HostId choose_receiver(Generator& generator, std::size_t sender) noexcept;
  void begin_flow(Generator& generator, switching::HostId from, switching::HostId to, Instant now) noexcept;
  void try_send(Flow& flow, Instant now) noexcept;
  void notify(Flow& flow, Instant now) noexcept;
  void end_if_over(Flow& flow, Instant now) noexcept;
  [[nodiscard]] Reference reference_to(const Flow& flow, bool notification) const noexcept;

  Wheel& wheel_;
  Carrier& carrier_;
  Rng rng_;
  std::vector<std::unique_ptr<Generator>> generators_;
  std::deque<Flow> flows_;  // stay where they are: timers and references point to them
  std::vector<std::uint32_t> free_;
  ArrivalTimer arrival_timer_{*this};
  FlowTimer flow_timer_{*this};
};

}  // namespace nbx::traffic
