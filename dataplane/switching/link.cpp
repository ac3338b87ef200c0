// See the header. A packet is its own timer node; pause frames have nodes of the link.
#include "switching/link.hpp"

namespace nbx::switching {

Link::Link(Wheel& wheel, PacketOwner& owner) noexcept : wheel_(&wheel), owner_(&owner) {
  for (PauseInFlight& pause : pauses_) {
    pause.client = &pause_timer_;
    free_pauses_.push_back(pause);
  }
}

void Link::connect(Receiver& to, PortIndex port, Duration propagation, Duration latency) noexcept {
  to_ = &to;
  port_ = port;
  propagation_ = propagation;
  latency_ = latency;
}

void Link::carry(Packet& packet, Instant now) noexcept {
  if (!up_) {
    owner_->on_dropped(packet, SwitchDrop::link_down, now);
    return;
  }
  packet.client = this;
  wheel_->arm(packet, now + propagation_ + latency_);
}

bool Link::carry(const PauseFrame& frame, Instant now) noexcept {
  if (!up_) {
    return true;  // lost, as the sender cannot know
  }
  auto* pause = static_cast<PauseInFlight*>(free_pauses_.pop_front());
  if (pause == nullptr) {
    return false;
  }
  pause->frame = frame;
  wheel_->arm(*pause, now + propagation_);
  return true;
}

void Link::set_up(bool up, Instant now) noexcept {
  if (up_ && !up) {
    went_down_ = now;
  }
  up_ = up;
}

void Link::on_timer(TimerNode& node, Instant now) noexcept {
  auto& packet = static_cast<Packet&>(node);
  if (lost(packet.due - propagation_ - latency_)) {
    owner_->on_dropped(packet, SwitchDrop::link_down, now);
    return;
  }
  to_->on_packet(packet, port_, packet.due);
}

void Link::PauseTimer::on_timer(TimerNode& node, Instant /*now*/) noexcept {
  auto& pause = static_cast<PauseInFlight&>(node);
  const PauseFrame frame = pause.frame;
  const Instant due = pause.due;
  link_->free_pauses_.push_back(pause);
  if (!link_->lost(due - link_->propagation_)) {
    link_->to_->on_pause(frame, link_->port_, due);
  }
}

}  // namespace nbx::switching
