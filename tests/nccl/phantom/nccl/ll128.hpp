// One end of a connection under the LL128 protocol: 120 bytes of data travel in a 128-byte line
// whose last 8 bytes are the flag. Sixteen lines make a unit, in which data words are interleaved
// the way the 32 threads of a warp hold them.
#pragma once

#include <array>

#include "simple.hpp"

namespace phantom::nccl {

struct Ll128Unit {
  static constexpr int words = 256, data_words = 240, line_words = 16;
  // Where each data word is on the wire. Thread t holds 16 bytes of each of four groups; the
  // last thread of every eight has a flag in place of its second word, so that the data for an
  // odd group's first word is taken along with the even group before it.
  static constexpr std::array<int, data_words> wire_index() {
    std::array<int, data_words> at{};
    for (int g = 0; g < 4; g++)
      for (int t = 0; t < 32; t++) {
        const bool flagged = t % 8 == 7;
        if (flagged && g % 2) continue;
        const int pack = g * 32 - 4 * (g / 2) + t - (g % 2) * (t / 8);
        at[2 * pack] = 2 * (g * 32 + t);
        at[2 * pack + 1] = flagged ? 2 * ((g + 1) * 32 + t) : 2 * (g * 32 + t) + 1;
      }
    return at;
  }
  static constexpr size_t units(size_t bytes) { return (bytes + data_words * 8 - 1) / (data_words * 8); }
};

class LL128End {
 public:
  LL128End(const KernelComm* comm, ConnInfo* conn)
      : comm_(comm), conn_(conn), words_(comm->buff_sizes[proto_ll128] / steps / sizeof(uint64_t)), step_(conn->step) {}
  ~LL128End() { conn_->step = step_; }
  LL128End(const LL128End&) = delete;

 protected:
  uint64_t* unit(size_t i) const {
    return reinterpret_cast<uint64_t*>(conn_->buffs[proto_ll128]) + (step_ % steps) * words_ + i * Ll128Unit::words;
  }
  uint64_t flag() const { return step_ + 1; }
  static constexpr auto wire_ = Ll128Unit::wire_index();
  const KernelComm* comm_;
  ConnInfo* conn_;
  const size_t words_;
  uint64_t step_;
};

class Ll128Sender : public LL128End {
 public:
  static constexpr bool receives = false;
  using LL128End::LL128End;
  void wait(size_t bytes) {
    spin_until(comm_, [&] { return load_step(conn_->head) + steps >= step_ + 1; });
    if (conn_->conn_fifo)
      *static_cast<volatile int64_t*>(&conn_->conn_fifo[step_ % steps].size) =
          int64_t(Ll128Unit::units(bytes) * Ll128Unit::words * sizeof(uint64_t));
  }
  void put(size_t i, const uint64_t* data) {
    uint64_t* u = unit(i);
    for (int w = 0; w < Ll128Unit::data_words; w++) u[wire_[w]] = data[w];
    for (int l = Ll128Unit::line_words - 1; l < Ll128Unit::words; l += Ll128Unit::line_words)
      __atomic_store_n(&u[l], flag(), __ATOMIC_RELEASE);
  }
  void post() {
    step_++;
    if (conn_->conn_fifo) store_step(conn_->tail, step_);  // for the proxy; kernels look at flags
  }
};

class Ll128Receiver : public LL128End {
 public:
  static constexpr bool receives = true;
  using LL128End::LL128End;
  void get(size_t i, uint64_t* data) {
    const uint64_t* u = unit(i);
    for (int l = Ll128Unit::line_words - 1; l < Ll128Unit::words; l += Ll128Unit::line_words)
      spin_until(comm_, [&] { return __atomic_load_n(&u[l], __ATOMIC_ACQUIRE) == flag(); });
    // A network writes a line's data and its flag in any order: there the proxy's word counts.
    if (conn_->conn_fifo) spin_until(comm_, [&] { return load_step(conn_->tail) >= step_ + 1; });
    for (int w = 0; w < Ll128Unit::data_words; w++) data[w] = u[wire_[w]];
  }
  void post() { store_step(conn_->head, ++step_); }
};

}  // namespace phantom::nccl
