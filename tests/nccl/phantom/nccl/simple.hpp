// One end of a connection under the Simple protocol, and the step that all ring algorithms
// are made of: wait for a filled and/or a free slot, combine, post.
#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "layout.hpp"

namespace phantom::nccl {

struct Aborted : std::runtime_error {
  Aborted() : std::runtime_error("aborted") {}
};

inline uint64_t load_step(const uint64_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
inline void store_step(uint64_t* p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

template <class Ready>
void spin_until(const KernelComm* comm, Ready ready) {
  constexpr unsigned patience = 64 * 64;
  constexpr timespec rest{0, 20'000};
  for (unsigned n = 1; !ready(); n++) {
    if (n % 64 == 0) {
      if (comm->abort_flag && *comm->abort_flag) throw Aborted();
      // There may be fewer processors than ranks: a kernel that waits must not keep the network from its work.
      n < patience ? static_cast<void>(sched_yield()) : static_cast<void>(nanosleep(&rest, nullptr));
    }
  }
}

class End {
 public:
  // steps: how many slots one slice takes. Both ends start at a multiple of a chunk.
  End(const KernelComm* comm, ConnInfo* conn, int steps_per_slice, int slices_per_chunk)
      : comm_(comm), conn_(conn), per_slice_(steps_per_slice) {
    const uint64_t chunk = uint64_t(steps_per_slice) * slices_per_chunk;
    step_ = (conn->step + chunk - 1) / chunk * chunk;
  }
  ~End() { conn_->step = step_; }
  End(const End&) = delete;

 protected:
  char* slot() const {
    const auto* fifo = conn_->conn_fifo ? &conn_->conn_fifo[step_ % steps] : nullptr;
    char* base = conn_->buffs[proto_simple];
    if (fifo && *static_cast<const volatile int*>(&fifo->mode) == mode_offset)
      return base + *static_cast<const volatile int*>(&fifo->offset);
    return base + (step_ % steps) * size_t(conn_->step_size);
  }
  const KernelComm* comm_;
  ConnInfo* conn_;
  uint64_t step_;
  const uint64_t per_slice_;
};

class Receiver : public End {
 public:
  static constexpr bool receives = true;
  Receiver(const KernelComm* c, ConnInfo* conn, int per_slice, int slices) : End(c, conn, per_slice, slices) {
    store_step(conn_->head, step_);  // gives back what the rounding skipped
  }
  const char* wait() {
    spin_until(comm_, [&] { return load_step(conn_->tail) >= step_ + per_slice_; });
    return slot();
  }
  void post() { store_step(conn_->head, step_ += per_slice_); }
};

class Sender : public End {
 public:
  static constexpr bool receives = false;
  using End::End;
  char* wait(size_t bytes) {
    spin_until(comm_, [&] { return load_step(conn_->head) + steps >= step_ + per_slice_; });
    if (conn_->conn_fifo) *static_cast<volatile int64_t*>(&conn_->conn_fifo[step_ % steps].size) = int64_t(bytes);
    return slot();
  }
  void post() { store_step(conn_->tail, step_ += per_slice_); }
};

// A chunk travels as `slices` pieces of this many elements (the last ones may be empty).
inline size_t slice_elems(size_t n, size_t slot_elems, int per_slice, int slices) {
  const size_t full = slot_elems * per_slice;
  const size_t even = (n + 16 * slices - 1) / (16 * slices) * 16;
  return std::max(even, full / 32);
}

}  // namespace phantom::nccl
