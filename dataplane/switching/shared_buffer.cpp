// Admission and release; see the header for who is counted where.
#include "switching/shared_buffer.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace nbx::switching {
namespace {

std::uint64_t set_aside(const BufferSpec& spec, PortIndex ports) {
  std::uint64_t per_port = 0;
  for (const PriorityBufferSpec& p : spec.priority) {
    per_port += p.reserved_bytes + (p.lossless ? p.headroom_bytes : 0);
  }
  return per_port * ports;
}

}  // namespace

bool SharedBuffer::fits(const BufferSpec& spec, PortIndex ports) { return set_aside(spec, ports) <= spec.size_bytes; }

SharedBuffer::SharedBuffer(const BufferSpec& spec, PortIndex ports)
    : spec_(spec),
      pool_size_(spec.size_bytes - std::min(spec.size_bytes, set_aside(spec, ports))),
      accounts_(std::size_t{ports} * priorities) {}

void SharedBuffer::resize(std::uint64_t size_bytes) noexcept {
  const auto ports = static_cast<PortIndex>(accounts_.size() / priorities);
  pool_size_ = size_bytes - std::min(size_bytes, set_aside(spec_, ports));
}

std::uint64_t SharedBuffer::in_pool(const Account& account, unsigned priority) const noexcept {
  const std::uint64_t reserved = spec_.priority[priority].reserved_bytes;
  return account.bytes > reserved ? account.bytes - reserved : 0;
}

std::uint64_t SharedBuffer::threshold(unsigned priority) const noexcept {
  const std::uint64_t free = pool_size_ - std::min(pool_size_, pool_used_);
  const int n = spec_.priority[priority].alpha_log2;
  return n >= 0 ? free << static_cast<unsigned>(n) : free >> static_cast<unsigned>(-n);
}

std::uint64_t SharedBuffer::xoff(unsigned priority) const noexcept {
  const std::uint64_t fixed = spec_.priority[priority].xoff_bytes;
  return fixed != 0 ? fixed : threshold(priority);
}

std::optional<SwitchDrop> SharedBuffer::admit(const Packet& packet, std::uint64_t queued) noexcept {
  const unsigned priority = packet.priority;
  const PriorityBufferSpec& spec = spec_.priority[priority];
  Account& own = account(packet.ingress, priority);
  const std::uint64_t before = in_pool(own, priority);
  own.bytes += packet.size;
  const std::uint64_t growth = in_pool(own, priority) - before;
  const bool room = pool_used_ + growth <= pool_size_;

  if (spec.lossless) {
    if (room && own.headroom == 0 && (growth == 0 || before + growth <= xoff(priority))) {
      pool_used_ += growth;
      return std::nullopt;
    }
    own.bytes -= packet.size;
    if (own.headroom + packet.size > spec.headroom_bytes) {
      return SwitchDrop::headroom_full;
    }
    own.headroom += packet.size;
    own.headroom_peak = std::max(own.headroom_peak, own.headroom);
    return std::nullopt;
  }

  std::optional<SwitchDrop> refusal;
  if (spec.queue_limit_bytes != 0 && queued + packet.size > spec.queue_limit_bytes) {
    refusal = SwitchDrop::queue_limit;
  } else if (growth != 0 && !room) {
    refusal = SwitchDrop::buffer_full;
  } else if (growth != 0 && queued + packet.size > threshold(priority)) {
    refusal = SwitchDrop::dynamic_threshold;
  }
  if (refusal) {
    own.bytes -= packet.size;
  } else {
    pool_used_ += growth;
  }
  return refusal;
}

void SharedBuffer::release(const Packet& packet) noexcept {
  Account& own = account(packet.ingress, packet.priority);
  const std::uint64_t from_headroom = std::min<std::uint64_t>(own.headroom, packet.size);
  const std::uint64_t before = in_pool(own, packet.priority);
  NBX_CHECK(own.bytes + from_headroom >= packet.size);
  own.headroom -= from_headroom;
  own.bytes -= packet.size - from_headroom;
  pool_used_ -= before - in_pool(own, packet.priority);
}

bool SharedBuffer::above_xoff(PortIndex ingress, unsigned priority) const noexcept {
  const Account& own = account(ingress, priority);
  return own.headroom != 0 || in_pool(own, priority) > xoff(priority);
}

bool SharedBuffer::below_xon(PortIndex ingress, unsigned priority) const noexcept {
  const Account& own = account(ingress, priority);
  return own.headroom == 0 && !holds_pause(priority, own.bytes);
}

bool SharedBuffer::holds_pause(unsigned priority, std::uint64_t bytes) const noexcept {
  const PriorityBufferSpec& spec = spec_.priority[priority];
  const std::uint64_t pooled = bytes - std::min<std::uint64_t>(bytes, spec.reserved_bytes);
  return pooled != 0 && pooled + spec.xon_bytes > xoff(priority);
}

std::uint64_t SharedBuffer::held(PortIndex ingress, unsigned priority) const noexcept {
  const Account& own = account(ingress, priority);
  return own.bytes + own.headroom;
}

std::uint64_t SharedBuffer::headroom_peak(PortIndex ingress, unsigned priority) const noexcept {
  return account(ingress, priority).headroom_peak;
}

}  // namespace nbx::switching
