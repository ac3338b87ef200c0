// Frames in DPDK's packet buffers. Every mbuf of a pool carries its Frame in its private area, so turning one into the
// other is address arithmetic, and a frame may be freed by whichever driver sent it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "frame/pool.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace nbx::port {

class MbufSource final : public FrameSource {
 public:
  static Result<std::unique_ptr<MbufSource>> create(const std::string& name, std::size_t frames, std::uint32_t mtu);
  ~MbufSource() override;
  MbufSource(const MbufSource&) = delete;
  MbufSource& operator=(const MbufSource&) = delete;
  MbufSource(MbufSource&&) = delete;
  MbufSource& operator=(MbufSource&&) = delete;

  std::size_t take(std::span<Frame*> frames) noexcept override;
  void give(std::span<Frame* const> frames) noexcept override;

  [[nodiscard]] rte_mempool* pool() noexcept { return pool_; }
  [[nodiscard]] std::size_t total() const noexcept;
  /// Buffers outside the pool: with the shard, in a driver's rings, or on their way.
  [[nodiscard]] std::size_t in_use() const noexcept;

 private:
  explicit MbufSource(rte_mempool* pool) noexcept : pool_(pool) {}

  rte_mempool* pool_;
};

/// A received mbuf as a frame. nullptr when the packet is longer than one buffer; the mbuf is freed then.
[[nodiscard]] Frame* frame_of_received(rte_mbuf& mbuf, Instant now) noexcept;
/// The mbuf of a frame, describing the frame's bytes, ready to be sent.
[[nodiscard]] rte_mbuf& mbuf_to_send(const Frame& frame) noexcept;
/// The frame of an mbuf that was to be sent but was not.
[[nodiscard]] Frame& frame_of(rte_mbuf& mbuf) noexcept;

}  // namespace nbx::port
