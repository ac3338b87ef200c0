#include "port/mbuf_source.hpp"

#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>

#include <algorithm>
#include <array>
#include <new>

#include "frame/buffer.hpp"

namespace nbx::port {
namespace {

static_assert(buffer::header == sizeof(rte_mbuf) && buffer::headroom == RTE_PKTMBUF_HEADROOM &&
              buffer::smallest_room == RTE_MBUF_DEFAULT_DATAROOM && buffer::cache_line == RTE_CACHE_LINE_SIZE);

/// A Frame as a source promises it: data and capacity set, the rest as constructed.
Frame& renew(rte_mbuf& mbuf, std::size_t offset) noexcept {
  auto& frame = *new (rte_mbuf_to_priv(&mbuf)) Frame;
  frame.data = static_cast<std::byte*>(mbuf.buf_addr) + offset;
  frame.capacity = static_cast<std::uint32_t>(mbuf.buf_len - offset);
  return frame;
}

/// Ordinary pages come at their first use; a frame must not wait for one.
void touch_pages(rte_mempool* pool, void*, void* object, unsigned) {
  constexpr std::uint32_t page = 4096;
  volatile auto* bytes = static_cast<unsigned char*>(object);
  for (std::uint32_t offset = 0; offset < pool->elt_size; offset += page) {
    bytes[offset] = 0;
  }
  bytes[pool->elt_size - 1] = 0;
}

/// What rte_pktmbuf_pool_create() does, but packed across pages: device addresses are virtual ones (--iova-mode=va), so
/// a buffer need not lie within one page, which would waste half of the memory on ordinary pages.
rte_mempool* create_pool(const std::string& name, unsigned frames, std::uint16_t room) {
  const auto element = static_cast<unsigned>(buffer::header + buffer::private_size + room);
  rte_pktmbuf_pool_private geometry{};
  geometry.mbuf_data_room_size = room;
  geometry.mbuf_priv_size = buffer::private_size;
  rte_mempool* pool = rte_mempool_create_empty(name.c_str(), frames, element, buffer::cached, sizeof geometry,
                                               SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_IOVA_CONTIG);
  if (pool == nullptr) {
    return nullptr;
  }
  rte_pktmbuf_pool_init(pool, &geometry);
  if (rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), nullptr) != 0 ||
      rte_mempool_populate_default(pool) < 0) {
    rte_mempool_free(pool);
    return nullptr;
  }
  rte_mempool_obj_iter(pool, touch_pages, nullptr);
  rte_mempool_obj_iter(pool, rte_pktmbuf_init, nullptr);
  return pool;
}

}  // namespace

Result<std::unique_ptr<MbufSource>> MbufSource::create(const std::string& name, std::size_t frames, std::uint32_t mtu) {
  if (buffer::data_room(mtu) > UINT16_MAX) {
    return Error{"an MTU of " + std::to_string(mtu) + " does not fit a packet buffer"};
  }
  rte_mempool* pool =
      create_pool(name, static_cast<unsigned>(frames), static_cast<std::uint16_t>(buffer::data_room(mtu)));
  if (pool == nullptr) {
    return Error{"no memory for " + std::to_string(frames) + " packet buffers (" +
                 std::to_string(frames * buffer::bytes(mtu) >> 20U) + " MiB): " + rte_strerror(rte_errno) +
                 "; give the machine more memory, or lower memory.size in the cluster file"};
  }
  return std::unique_ptr<MbufSource>(new MbufSource(pool));
}

MbufSource::~MbufSource() { rte_mempool_free(pool_); }

std::size_t MbufSource::take(std::span<Frame*> frames) noexcept {
  std::array<rte_mbuf*, 64> mbufs;
  std::size_t taken = 0;
  while (taken < frames.size()) {
    const auto n = static_cast<unsigned>(std::min(frames.size() - taken, mbufs.size()));
    if (rte_pktmbuf_alloc_bulk(pool_, mbufs.data(), n) != 0) {
      break;
    }
    for (unsigned i = 0; i < n; ++i) {
      frames[taken++] = &renew(*mbufs[i], RTE_PKTMBUF_HEADROOM);
    }
  }
  return taken;
}

void MbufSource::give(std::span<Frame* const> frames) noexcept {
  for (Frame* frame : frames) {
    // A frame may have come from another port's pool; the mbuf knows.
    rte_pktmbuf_free(&mbuf_to_send(*frame));
  }
}

std::size_t MbufSource::total() const noexcept { return pool_->size; }
std::size_t MbufSource::in_use() const noexcept { return rte_mempool_in_use_count(pool_); }

Frame* frame_of_received(rte_mbuf& mbuf, Instant now) noexcept {
  if (mbuf.nb_segs != 1 && rte_pktmbuf_linearize(&mbuf) != 0) {
    rte_pktmbuf_free(&mbuf);
    return nullptr;
  }
  Frame& frame = renew(mbuf, mbuf.data_off);
  frame.size = mbuf.data_len;
  frame.arrival = now;
  return &frame;
}

rte_mbuf& mbuf_to_send(const Frame& frame) noexcept {
  auto& mbuf = *reinterpret_cast<rte_mbuf*>(reinterpret_cast<std::uintptr_t>(&frame) - sizeof(rte_mbuf));
  mbuf.data_off = static_cast<std::uint16_t>(frame.data - static_cast<std::byte*>(mbuf.buf_addr));
  mbuf.data_len = static_cast<std::uint16_t>(frame.size);
  mbuf.pkt_len = frame.size;
  mbuf.ol_flags = 0;  // what the receiving driver said of these bytes, such as a stripped tag, is not a request
  return mbuf;
}

Frame& frame_of(rte_mbuf& mbuf) noexcept { return *static_cast<Frame*>(rte_mbuf_to_priv(&mbuf)); }

}  // namespace nbx::port
