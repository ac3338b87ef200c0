// The common part of every flow.
#include "virtual_time/flow.hpp"

#include <algorithm>

#include "virtual_time/world.hpp"

namespace nbx::virtual_time {

Flow::Flow(World& world, const FlowSpec& spec) : world_(&world), spec_(spec) {
  timer_.client = this;
  wake_at(spec.start);
}

void Flow::departed(SimPacket& packet, Duration waited, Instant now) noexcept {
  if (packet.kind == Kind::data) {
    ++stats_.departed;
    stats_.waited += waited;
    on_departed(now);
  }
}

void Flow::arrived(SimPacket& packet, Instant now) noexcept {
  if (packet.kind != Kind::data) {
    stats_.cnps += packet.kind == Kind::cnp ? 1U : 0U;
    on_answer(packet, now);
    return;
  }
  ++stats_.delivered;
  stats_.delivered_bytes += packet.size;
  stats_.marked += packet.ecn == switching::Ecn::ce ? 1U : 0U;
  stats_.last_delivery = now;
  if (packet.psn < highest_psn_) {
    ++stats_.reordered;
    stats_.reorder_extent = std::max(stats_.reorder_extent, highest_psn_ - packet.psn);
  }
  highest_psn_ = std::max(highest_psn_, packet.psn);
  on_data(packet, now);
}

void Flow::on_dropped(SimPacket& packet, Instant /*now*/) noexcept {
  stats_.dropped += packet.kind == Kind::data ? 1U : 0U;
}

bool Flow::send_data(std::uint32_t size, Instant now, std::uint32_t psn) noexcept {
  SimPacket* packet = world_->pool().take();
  if (packet == nullptr) {
    return false;
  }
  packet->of = this;
  packet->kind = Kind::data;
  packet->size = size;
  packet->destination = spec_.destination;
  packet->flow = spec_.hash;
  packet->priority = spec_.priority;
  packet->ecn = spec_.ecn;
  packet->psn = psn;
  ++stats_.sent;
  world_->host(spec_.source).send(*packet, now);
  return true;
}

bool Flow::send_answer(Kind kind, std::uint32_t size, std::uint8_t priority, Instant now, std::uint32_t psn,
                       std::uint32_t out_of_order_psn) noexcept {
  SimPacket* packet = world_->pool().take();
  if (packet == nullptr) {
    return false;
  }
  packet->of = this;
  packet->kind = kind;
  packet->size = size;
  packet->destination = spec_.source;
  packet->flow = spec_.hash;
  packet->priority = priority;
  packet->ecn = switching::Ecn::not_ect;
  packet->psn = psn;
  packet->out_of_order_psn = out_of_order_psn;
  world_->host(spec_.destination).send(*packet, now);
  return true;
}

void Flow::wake_at(Instant at) noexcept { world_->wheel().arm(timer_, at); }

std::uint32_t Flow::on_line(std::uint32_t size) const noexcept {
  return size + world_->host(spec_.source).overhead_bytes();
}

}  // namespace nbx::virtual_time
