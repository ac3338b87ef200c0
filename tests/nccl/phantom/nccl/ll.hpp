// One end of a connection under the LL protocol: every 8 bytes of data travel in a 16-byte
// line that carries its own flags, so that no counter has to be read to see them arrive.
#pragma once

#include "simple.hpp"

namespace phantom::nccl {

struct Line {
  uint64_t half[2];  // low 32 bits: data, high 32 bits: flag
};
static_assert(sizeof(Line) == 16);

class LLEnd {
 public:
  LLEnd(const KernelComm* comm, ConnInfo* conn)
      : comm_(comm), conn_(conn), lines_(comm->buff_sizes[proto_ll] / steps / sizeof(Line)), step_(conn->step) {}
  ~LLEnd() { conn_->step = step_; }
  LLEnd(const LLEnd&) = delete;

 protected:
  Line* slot() const { return reinterpret_cast<Line*>(conn_->buffs[proto_ll]) + (step_ % steps) * lines_; }
  uint32_t flag() const { return uint32_t(step_ + 1); }
  const KernelComm* comm_;
  ConnInfo* conn_;
  const size_t lines_;
  uint64_t step_;
};

class LlSender : public LLEnd {
 public:
  static constexpr bool receives = false;
  using LLEnd::LLEnd;
  void wait(size_t bytes) {
    spin_until(comm_, [&] { return load_step(conn_->head) + steps >= step_ + 1; });
    if (conn_->conn_fifo)
      *static_cast<volatile int64_t*>(&conn_->conn_fifo[step_ % steps].size) = int64_t((bytes + 7) / 8 * sizeof(Line));
  }
  void put(size_t i, uint64_t data) {
    Line& l = slot()[i];
    const uint64_t f = uint64_t(flag()) << 32;
    __atomic_store_n(&l.half[0], f | uint32_t(data), __ATOMIC_RELEASE);
    __atomic_store_n(&l.half[1], f | (data >> 32), __ATOMIC_RELEASE);
  }
  void post() { step_++; }
};

class LlReceiver : public LLEnd {
 public:
  static constexpr bool receives = true;
  using LLEnd::LLEnd;
  uint64_t get(size_t i) {
    Line& l = slot()[i];
    uint64_t a = 0, b = 0;
    spin_until(comm_, [&] {
      a = __atomic_load_n(&l.half[0], __ATOMIC_ACQUIRE);
      b = __atomic_load_n(&l.half[1], __ATOMIC_ACQUIRE);
      return uint32_t(a >> 32) == flag() && uint32_t(b >> 32) == flag();
    });
    return uint32_t(a) | b << 32;
  }
  void post() { store_step(conn_->head, ++step_); }
};

}  // namespace phantom::nccl
