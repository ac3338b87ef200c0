// A transmitter, a link and a recorder at its end; packets from a slab.
#pragma once

#include <deque>
#include <vector>

#include "switching/egress_port.hpp"
#include "switching/link.hpp"
#include "timer/wheel.hpp"

namespace nbx::switching {

struct Arrival {
  Instant time;
  std::uint32_t size;
  std::uint8_t priority;
  Ecn ecn;
};

struct PauseArrival {
  Instant time;
  PauseFrame frame;
};

class RecordingReceiver : public Receiver {
 public:
  void on_packet(Packet& packet, PortIndex /*port*/, Instant now) noexcept override {
    arrivals.push_back({now, packet.size, packet.priority, packet.ecn});
  }
  void on_pause(const PauseFrame& frame, PortIndex /*port*/, Instant now) noexcept override {
    pauses.push_back({now, frame});
  }
  std::vector<Arrival> arrivals;
  std::vector<PauseArrival> pauses;
};

class RecordingOwner : public PacketOwner {
 public:
  void on_dropped(Packet& /*packet*/, SwitchDrop reason, Instant /*now*/) noexcept override { drops.push_back(reason); }
  std::vector<SwitchDrop> drops;
};

class PacketSlab {
 public:
  Packet& make(std::uint32_t size, std::uint8_t priority = 3, Ecn ecn = Ecn::ect0, HostId destination = 0) {
    Packet& p = slab_.emplace_back();
    p.size = size;
    p.priority = priority;
    p.ecn = ecn;
    p.destination = destination;
    return p;
  }

 private:
  std::deque<Packet> slab_;
};

class TransmitterRig : private EgressPort::Owner {
 public:
  explicit TransmitterRig(const EgressSpec& spec, Duration propagation = {})
      : link(wheel, owner), port(wheel, *this, link, spec) {
    link.connect(far, 0, propagation, Duration::zero());
  }

  Wheel wheel;
  RecordingOwner owner;
  RecordingReceiver far;
  Link link;
  EgressPort port;
  PacketSlab packets;

 private:
  void on_departed(Packet& /*packet*/, Instant /*now*/) noexcept override {}
};

inline PauseFrame pfc(std::uint8_t classes, std::uint16_t quanta) {
  PauseFrame frame;
  frame.class_enable = classes;
  for (unsigned p = 0; p < priorities; ++p) {
    frame.quanta[p] = ((classes >> p) & 1U) != 0 ? quanta : std::uint16_t{0};
  }
  return frame;
}

}  // namespace nbx::switching
