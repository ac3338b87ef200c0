// Emulates NCCL's kernels: decodes the argument block and runs each block (channel) of the
// grid on a host thread, against NCCL's own device structures.
//
// Covered: ring AllReduce, AllGather, ReduceScatter, Broadcast and Reduce, and tree AllReduce, under
// the Simple, LL and LL128 protocols; Send/Recv; the one-rank reduction. Registered user buffers
// are not.
#include <chrono>
#include <thread>

#include "../driver/internal.hpp"
#include "../driver/kernels.hpp"
#include "layout.hpp"
#include "ll.hpp"
#include "ll128.hpp"
#include "reductions.hpp"
#include "simple.hpp"

namespace phantom::nccl {
namespace {

struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How many slots a slice takes and how many slices make a chunk, per collective.
struct Slicing {
  int per_slice, slices;
};
Slicing slicing_of(CollKind c, int algo) {
  if (algo == tree_algo) return {1, 1};
  switch (c) {
    case CollKind::all_reduce:
    case CollKind::all_gather:
    case CollKind::reduce_scatter:
      return {steps / 4, 2};
    default:
      return {1, 1};
  }
}

// The share of a collective that one channel handles, in elements.
struct Part {
  size_t count, offset, size, chunk;
};
Part part_of(const Coll& w, int channel, size_t elem_size, int grain_bytes) {
  const size_t per_grain = grain_bytes / elem_size;
  const int lo = w.channel_lo, hi = w.channel_hi, mids = hi - lo - 1;
  const size_t mid = mids > 0 ? w.count_mid * size_t(mids) : 0;
  Part p{};
  p.count = w.count_lo + mid + (hi > lo ? w.count_hi : 0);
  if (channel == lo) return p.size = w.count_lo, p.chunk = w.chunk_grains_lo * per_grain, p;
  if (channel == hi)
    return p.offset = w.count_lo + mid, p.size = w.count_hi, p.chunk = w.chunk_grains_hi * per_grain, p;
  p.offset = w.count_lo + size_t(channel - lo - 1) * w.count_mid;
  p.size = w.count_mid;
  p.chunk = w.chunk_grains_mid * per_grain;
  return p;
}

// One step of an algorithm, on a chunk of data: receive from all peers of one side, combine,
// send to all peers of the other side.
template <class T>
struct StepOf {
  const T* in = nullptr;  // this rank's own data, combined with what is received
  T* out = nullptr;       // where the result is kept here
  bool recv = false, send = false, last = false;
};

using Peers = std::vector<int>;
template <class EndType, class... Args>
std::vector<std::unique_ptr<EndType>> open_ends(KernelComm* comm, Channel* ch, const Peers& peers, Args... args) {
  std::vector<std::unique_ptr<EndType>> ends;
  for (int p : peers) {
    ConnInfo* conn;
    if constexpr (EndType::receives)
      conn = &ch->peers[p]->recv[0];
    else
      conn = &ch->peers[p]->send[0];
    ends.push_back(std::make_unique<EndType>(comm, conn, args...));
  }
  return ends;
}

// The step under Simple.
template <class T, class Op>
class SimplePipe {
 public:
  static constexpr int grain = simple_grain;
  using Step = StepOf<T>;
  template <class Other>
  using WithOp = SimplePipe<T, Other>;
  SimplePipe(KernelComm* comm, Channel* ch, Slicing s, const Op& op, const Peers& from, const Peers& to)
      : op_(op),
        slicing_(s),
        slot_elems_(comm->buff_sizes[proto_simple] / steps / sizeof(T)),
        recv_(open_ends<Receiver>(comm, ch, from, s.per_slice, s.slices)),
        send_(open_ends<Sender>(comm, ch, to, s.per_slice, s.slices)) {}

  void run(Step st, size_t n) {
    const size_t most = slice_elems(n, slot_elems_, slicing_.per_slice, slicing_.slices);
    size_t done = 0;
    for (int s = 0; s < slicing_.slices; s++) {
      const size_t m = std::min(most, n - done);
      std::vector<const T*> from;
      std::vector<T*> to;
      if (st.recv)
        for (auto& r : recv_) from.push_back(reinterpret_cast<const T*>(r->wait()));
      if (st.send)
        for (auto& o : send_) to.push_back(reinterpret_cast<T*>(o->wait(m * sizeof(T))));
      move(st, from, to, done, m);
      if (st.recv)
        for (auto& r : recv_) r->post();
      if (st.send)
        for (auto& o : send_) o->post();
      done += m;
    }
  }

 private:
  void move(const Step& st, const std::vector<const T*>& from, const std::vector<T*>& to, size_t at, size_t n) {
    T* out = st.out ? st.out + at : nullptr;
    for (size_t i = 0; i < n; i++) {
      size_t first = 0;
      T v = st.in ? op_.pre(st.in[at + i]) : from[first++][i];
      for (size_t k = first; k < from.size(); k++) v = op_.combine(v, from[k][i]);
      if (st.last) v = op_.post(v);
      if (out) out[i] = v;
      for (T* t : to) t[i] = v;
    }
  }
  const Op& op_;
  const Slicing slicing_;
  const size_t slot_elems_;
  std::vector<std::unique_ptr<Receiver>> recv_;
  std::vector<std::unique_ptr<Sender>> send_;
};

// The same under LL: a chunk is one slot, its data cut into lines of 8 bytes.
template <class T, class Op>
class LlPipe {
 public:
  static constexpr int grain = ll_grain;
  using Step = StepOf<T>;
  template <class Other>
  using WithOp = LlPipe<T, Other>;
  LlPipe(KernelComm* comm, Channel* ch, Slicing, const Op& op, const Peers& from, const Peers& to)
      : op_(op), recv_(open_ends<LlReceiver>(comm, ch, from)), send_(open_ends<LlSender>(comm, ch, to)) {}

  void run(const Step& st, size_t n) {
    constexpr size_t per = 8 / sizeof(T);
    if (st.send)
      for (auto& o : send_) o->wait(n * sizeof(T));
    for (size_t at = 0, line = 0; at < n; at += per, line++) {
      const size_t m = std::min(per, n - at);
      T v[per]{};
      bool have = st.in != nullptr;
      if (have)
        for (size_t i = 0; i < m; i++) v[i] = op_.pre(st.in[at + i]);
      if (st.recv)
        for (auto& r : recv_) {
          T got[per];
          const uint64_t data = r->get(line);
          memcpy(static_cast<void*>(got), &data, 8);
          for (size_t i = 0; i < m; i++) v[i] = have ? op_.combine(v[i], got[i]) : got[i];
          have = true;
        }
      for (size_t i = 0; i < m; i++) {
        if (st.last) v[i] = op_.post(v[i]);
        if (st.out) st.out[at + i] = v[i];
      }
      uint64_t data;
      memcpy(&data, static_cast<const void*>(v), 8);
      if (st.send)
        for (auto& o : send_) o->put(line, data);
    }
    if (st.recv)
      for (auto& r : recv_) r->post();
    if (st.send)
      for (auto& o : send_) o->post();
  }

 private:
  const Op& op_;
  std::vector<std::unique_ptr<LlReceiver>> recv_;
  std::vector<std::unique_ptr<LlSender>> send_;
};

// The same under LL128: a chunk is one slot, its data cut into units of 1920 bytes.
template <class T, class Op>
class Ll128Pipe {
 public:
  static constexpr int grain = ll128_grain;
  using Step = StepOf<T>;
  template <class Other>
  using WithOp = Ll128Pipe<T, Other>;
  Ll128Pipe(KernelComm* comm, Channel* ch, Slicing, const Op& op, const Peers& from, const Peers& to)
      : op_(op), recv_(open_ends<Ll128Receiver>(comm, ch, from)), send_(open_ends<Ll128Sender>(comm, ch, to)) {}

  void run(const Step& st, size_t n) {
    constexpr size_t per = ll128_grain / sizeof(T);
    if (st.send)
      for (auto& o : send_) o->wait(n * sizeof(T));
    for (size_t at = 0, unit = 0; at < n; at += per, unit++) {
      const size_t m = std::min(per, n - at);
      union {
        uint64_t words[Ll128Unit::data_words];
        char bytes[ll128_grain];
      } raw{};
      T v[per]{};
      bool have = st.in != nullptr;
      if (have)
        for (size_t i = 0; i < m; i++) v[i] = op_.pre(st.in[at + i]);
      if (st.recv)
        for (auto& r : recv_) {
          T got[per];
          r->get(unit, raw.words);
          memcpy(static_cast<void*>(got), raw.bytes, sizeof got);
          for (size_t i = 0; i < m; i++) v[i] = have ? op_.combine(v[i], got[i]) : got[i];
          have = true;
        }
      for (size_t i = 0; i < m; i++) {
        if (st.last) v[i] = op_.post(v[i]);
        if (st.out) st.out[at + i] = v[i];
      }
      if (!st.send) continue;
      memcpy(raw.bytes, static_cast<const void*>(v), sizeof v);
      for (auto& o : send_) o->put(unit, raw.words);
    }
    if (st.recv)
      for (auto& r : recv_) r->post();
    if (st.send)
      for (auto& o : send_) o->post();
  }

 private:
  const Op& op_;
  std::vector<std::unique_ptr<Ll128Receiver>> recv_;
  std::vector<std::unique_ptr<Ll128Sender>> send_;
};

// A plain copy, for the collectives that move data without reducing.
template <class T>
struct OpNone : OpBase<T> {
  using OpBase<T>::OpBase;
  T combine(T, T b) const { return b; }
};

template <class T, class Op, class Pipe>
void run_ring(CollKind kind, KernelComm* comm, Channel* ch, int channel_id, const Coll& w, const Op& op) {
  using Step = typename Pipe::Step;
  const Part p = part_of(w, channel_id, sizeof(T), Pipe::grain);
  const int n = comm->n_ranks;
  const int* order = ch->ring.user_ranks;
  const T* in = static_cast<const T*>(w.sendbuff);
  T* out = static_cast<T*>(w.recvbuff);
  Pipe pipe(comm, ch, slicing_of(kind, ring_algo), op, {ch->ring.prev}, {ch->ring.next});
  PLOG(3, "rank %d channel %d: part of %zu from %zu, %zu at once", comm->rank, channel_id, p.size, p.offset, p.chunk);

  switch (kind) {
    case CollKind::all_reduce: {
      // Each loop handles one chunk per rank: the chunk of each rank goes once round to be
      // summed, ending at that rank's own position, and once more to be handed out.
      size_t chunk = p.chunk;
      for (size_t base = 0; base < p.size; base += size_t(n) * p.chunk) {
        const size_t left = p.size - base;
        if (left < size_t(n) * p.chunk) {
          const size_t align = 16 / sizeof(T);
          chunk = ((left + n - 1) / n + align - 1) / align * align;
        }
        auto piece = [&](int r, size_t* at) {
          const size_t o = size_t(r % n) * chunk;
          *at = p.offset + base + o;
          return o < left ? std::min(chunk, left - o) : 0;
        };
        const int me = ch->ring.index;
        size_t at, m;
        m = piece(me + n - 1, &at);
        pipe.run(Step{.in = in + at, .send = true}, m);
        for (int j = 2; j < n; j++) {
          m = piece(me + n - j, &at);
          pipe.run(Step{.in = in + at, .recv = true, .send = true}, m);
        }
        m = piece(me, &at);
        pipe.run(Step{.in = in + at, .out = out + at, .recv = true, .send = true, .last = true}, m);
        for (int j = 1; j < n - 1; j++) {
          m = piece(me + n - j, &at);
          pipe.run(Step{.out = out + at, .recv = true, .send = true}, m);
        }
        m = piece(me + 1, &at);
        pipe.run(Step{.out = out + at, .recv = true}, m);
      }
      break;
    }
    case CollKind::all_gather:
      for (size_t base = 0; base < p.size; base += p.chunk) {
        const size_t m = std::min(p.chunk, p.size - base), at = p.offset + base;
        pipe.run(Step{.in = in + at, .out = out + at + size_t(order[0]) * p.count, .send = true}, m);
        for (int j = 1; j < n - 1; j++)
          pipe.run(Step{.out = out + at + size_t(order[n - j]) * p.count, .recv = true, .send = true}, m);
        pipe.run(Step{.out = out + at + size_t(order[1]) * p.count, .recv = true}, m);
      }
      break;
    case CollKind::reduce_scatter:
      for (size_t base = 0; base < p.size; base += p.chunk) {
        const size_t m = std::min(p.chunk, p.size - base), at = p.offset + base;
        pipe.run(Step{.in = in + at + size_t(order[n - 1]) * p.count, .send = true}, m);
        for (int j = 2; j < n; j++)
          pipe.run(Step{.in = in + at + size_t(order[n - j]) * p.count, .recv = true, .send = true}, m);
        pipe.run(Step{.in = in + at + size_t(order[0]) * p.count, .out = out + at, .recv = true, .last = true}, m);
      }
      break;
    case CollKind::broadcast:
      for (size_t base = 0; base < p.size; base += p.chunk) {
        const size_t m = std::min(p.chunk, p.size - base), at = p.offset + base;
        const int root = int(w.root);
        if (order[0] == root)
          pipe.run(Step{.in = in + at, .out = out + at, .send = true}, m);
        else
          pipe.run(Step{.out = out + at, .recv = true, .send = order[1] != root}, m);
      }
      break;
    case CollKind::reduce:
      for (size_t base = 0; base < p.size; base += p.chunk) {
        const size_t m = std::min(p.chunk, p.size - base), at = p.offset + base;
        const int root = int(w.root);
        if (order[n - 1] == root)
          pipe.run(Step{.in = in + at, .send = true}, m);
        else if (comm->rank == root)
          pipe.run(Step{.in = in + at, .out = out + at, .recv = true, .last = true}, m);
        else
          pipe.run(Step{.in = in + at, .recv = true, .send = true}, m);
      }
      break;
    default:
      throw Unsupported("collective");
  }
}

// AllReduce over a tree: sums flow up to the root, then the result flows down. All of the
// data goes up before any comes down; the real kernel overlaps the two.
template <class T, class Op, class Pipe>
void run_tree(KernelComm* comm, Channel* ch, int channel_id, const Coll& w, const Op& op) {
  using Step = typename Pipe::Step;
  const Part p = part_of(w, channel_id, sizeof(T), Pipe::grain);
  const T* in = static_cast<const T*>(w.sendbuff);
  T* out = static_cast<T*>(w.recvbuff);
  Peers up, down;
  if (ch->tree.up != -1) up.push_back(ch->tree.up);
  for (int d : ch->tree.down)
    if (d != -1) down.push_back(d);
  const bool root = up.empty(), leaf = down.empty();
  auto chunks = [&](auto body) {
    for (size_t base = 0; base < p.size; base += p.chunk) body(p.offset + base, std::min(p.chunk, p.size - base));
  };
  {
    Pipe pipe(comm, ch, slicing_of(CollKind::all_reduce, tree_algo), op, down, up);
    chunks([&](size_t at, size_t m) {
      pipe.run(Step{.in = in + at, .out = root ? out + at : nullptr, .recv = !leaf, .send = !root, .last = root}, m);
    });
  }
  const OpNone<T> none(0);
  using Down = typename Pipe::template WithOp<OpNone<T>>;
  Down pipe(comm, ch, slicing_of(CollKind::all_reduce, tree_algo), none, up, down);
  chunks([&](size_t at, size_t m) {
    pipe.run(Step{.in = root ? out + at : nullptr, .out = root ? nullptr : out + at, .recv = !root, .send = !leaf}, m);
  });
}

template <class T, class Op>
void run_coll(const Function& f, KernelComm* comm, Channel* ch, int id, const Coll& w) {
  uint64_t arg = w.red_op_arg;
  if (w.red_op_arg_is_ptr) {
    arg = 0;
    memcpy(&arg, reinterpret_cast<void*>(w.red_op_arg), sizeof(T));
  }
  const Op op(arg);
  if (f.algo == tree_algo) {
    if (f.proto == proto_ll)
      run_tree<T, Op, LlPipe<T, Op>>(comm, ch, id, w, op);
    else if (f.proto == proto_ll128)
      run_tree<T, Op, Ll128Pipe<T, Op>>(comm, ch, id, w, op);
    else
      run_tree<T, Op, SimplePipe<T, Op>>(comm, ch, id, w, op);
  } else {
    if (f.proto == proto_ll)
      run_ring<T, Op, LlPipe<T, Op>>(f.coll, comm, ch, id, w, op);
    else if (f.proto == proto_ll128)
      run_ring<T, Op, Ll128Pipe<T, Op>>(f.coll, comm, ch, id, w, op);
    else
      run_ring<T, Op, SimplePipe<T, Op>>(f.coll, comm, ch, id, w, op);
  }
}

template <class T>
void run_typed(const Function& f, KernelComm* comm, Channel* ch, int id, const Coll& w) {
  if (f.coll == CollKind::all_gather || f.coll == CollKind::broadcast)
    return run_coll<T, OpNone<T>>(f, comm, ch, id, w);
  switch (f.red_op) {
    case sum:
      return run_coll<T, OpSum<T>>(f, comm, ch, id, w);
    case prod:
      return run_coll<T, OpProd<T>>(f, comm, ch, id, w);
    case min_max:
      return run_coll<T, OpMinMax<T>>(f, comm, ch, id, w);
    case pre_mul_sum:
      return run_coll<T, OpPreMulSum<T>>(f, comm, ch, id, w);
    case sum_post_div:
      return run_coll<T, OpSumPostDiv<T>>(f, comm, ch, id, w);
  }
  throw Unsupported("reduction");
}

void run_coll_work(const Function& f, KernelComm* comm, Channel* ch, int id, const Coll& w) {
  if (f.algo == other_algo || f.coll == CollKind::other)
    throw Unsupported(f.text == "Nop" ? "left out of this build of NCCL (ONLY_FUNCS)" : f.text);
  if (w.reg_used || w.net_reg_used) throw Unsupported("registered user buffers");
  switch (f.type) {
    case 0:
      return run_typed<int8_t>(f, comm, ch, id, w);
    case 1:
      return run_typed<uint8_t>(f, comm, ch, id, w);
    case 2:
      return run_typed<int32_t>(f, comm, ch, id, w);
    case 3:
      return run_typed<uint32_t>(f, comm, ch, id, w);
    case 4:
      return run_typed<int64_t>(f, comm, ch, id, w);
    case 5:
      return run_typed<uint64_t>(f, comm, ch, id, w);
    case 6:
      return run_typed<_Float16>(f, comm, ch, id, w);
    case 7:
      return run_typed<float>(f, comm, ch, id, w);
    case 8:
      return run_typed<double>(f, comm, ch, id, w);
    case 9:
      return run_typed<BFloat16>(f, comm, ch, id, w);
    default:
      throw Unsupported("element type");
  }
}

// ---- point to point -----------------------------------------------------------------------
// Chunk sizes come as 8-bit numbers: 3 bits of mantissa, an exponent above.
size_t decode_size(uint8_t x) {
  const unsigned e = x >> 3, m = x & 7;
  return e == 0 ? m : size_t(m | 8) << (e - 1);
}
// The bytes that part `i` of `n` covers: equal shares, in multiples of 4 KiB.
void part_bytes(int n, int i, size_t bytes, size_t* beg, size_t* end) {
  const size_t share = ((bytes + n - 1) / n + 4095) / 4096 * 4096;
  *beg = std::min(bytes, share * i);
  *end = std::min(bytes, share * (i + 1));
}
// Point-to-point data uses the second connection of a pair, one slot per slice.
template <class Body>
void in_chunks(size_t bytes, size_t chunk, Body body) {
  size_t at = 0;
  do {
    const size_t m = std::min(chunk, bytes - at);
    body(at, m);
    at += m;
  } while (at < bytes);
}

void send_ll(const KernelComm* comm, ConnInfo* conn, const char* from, size_t bytes, size_t chunk) {
  LlSender s(comm, conn);
  in_chunks(bytes, chunk, [&](size_t at, size_t m) {
    s.wait(m);
    for (size_t i = 0; i < m; i += 8) {
      uint64_t data = 0;
      memcpy(&data, from + at + i, std::min<size_t>(8, m - i));
      s.put(i / 8, data);
    }
    s.post();
  });
}
void recv_ll(const KernelComm* comm, ConnInfo* conn, char* to, size_t bytes, size_t chunk) {
  LlReceiver r(comm, conn);
  in_chunks(bytes, chunk, [&](size_t at, size_t m) {
    for (size_t i = 0; i < m; i += 8) {
      const uint64_t data = r.get(i / 8);
      memcpy(to + at + i, &data, std::min<size_t>(8, m - i));
    }
    r.post();
  });
}

void run_p2p_work(KernelComm* comm, Channel* ch, int channel_id, const P2p& w, std::vector<std::thread>& threads) {
  if (w.send_net_reg || w.recv_net_reg || w.send_ipc_reg || w.recv_ipc_reg)
    throw Unsupported("registered user buffers");
  const int part = (channel_id - w.channel_base) & (w.n_p2p_channels - 1);
  const bool sends = part < w.n_send_channels, recvs = part < w.n_recv_channels;
  size_t b, e;
  if (w.send_rank == comm->rank) {  // to itself
    if (!sends) return;
    part_bytes(w.n_send_channels, part, w.send_bytes, &b, &e);
    memmove(w.recv_addr + b, w.send_addr + b, e - b);
    return;
  }
  // Both directions run at once, as they wait for the same peers' other direction.
  if (sends) {
    part_bytes(w.n_send_channels, part, w.send_bytes, &b, &e);
    threads.emplace_back([=] {
      try {
        ConnInfo* conn = &ch->peers[w.send_rank]->send[1];
        if (w.send_proto_ll) return send_ll(comm, conn, w.send_addr + b, e - b, decode_size(w.send_chunk_size));
        Sender s(comm, conn, 1, 1);
        in_chunks(e - b, decode_size(w.send_chunk_size), [&](size_t at, size_t m) {
          memcpy(s.wait(m), w.send_addr + b + at, m);
          s.post();
        });
      } catch (const Aborted&) {
      }
    });
  }
  if (recvs) {
    part_bytes(w.n_recv_channels, part, w.recv_bytes, &b, &e);
    threads.emplace_back([=] {
      try {
        ConnInfo* conn = &ch->peers[w.recv_rank]->recv[1];
        if (w.recv_proto_ll) return recv_ll(comm, conn, w.recv_addr + b, e - b, decode_size(w.recv_chunk_size));
        Receiver r(comm, conn, 1, 1);
        in_chunks(e - b, decode_size(w.recv_chunk_size), [&](size_t at, size_t m) {
          memcpy(w.recv_addr + b + at, r.wait(), m);
          r.post();
        });
      } catch (const Aborted&) {
      }
    });
  }
}

// ---- one block of the grid --------------------------------------------------------------------
class Block {
 public:
  Block(const Description& d, const char* args, int block_index)
      : functions_(d.functions),
        args_(args),
        head_(*reinterpret_cast<const KernelArgs*>(args)),
        channel_id_(nth_channel(head_.channel_mask, block_index)),
        batch_(block_index),
        comm_(d.layout, head_.comm),
        channel_(d.layout, head_.comm, channel_id_) {}

  void run() {
    while (batch_ >= 0) {
      const auto works = next_batch();
      const auto known = functions_.find(func_id_);
      if (known == functions_.end()) throw Unsupported("function " + std::to_string(func_id_));
      const Function& f = known->second;
      if (type_ == work_bcast) throw Unsupported("batched broadcasts");
      PLOG(2, "rank %d channel %d: %s, %zu work item(s)", comm_.rank, channel_id_, f.text.c_str(), works.size());
      stamp(works, comm_.work_started);
      if (type_ == work_p2p) {
        std::vector<std::thread> threads;
        for (auto w : works) run_p2p_work(&comm_, &channel_, channel_id_, *reinterpret_cast<const P2p*>(w), threads);
        for (auto& t : threads) t.join();
      } else {
        for (auto w : works) run_coll_work(f, &comm_, &channel_, channel_id_, *reinterpret_cast<const Coll*>(w));
      }
      stamp(works, comm_.work_completed);
      if (channel_.work_counter) *channel_.work_counter += works.size();
    }
  }

 private:
  static int nth_channel(uint64_t mask, int n) {
    while (n-- > 0) mask &= mask - 1;
    return __builtin_ctzll(mask);
  }
  // Collects the work items of the next batch; a batch may be continued by another.
  std::vector<const char*> next_batch() {
    std::vector<const char*> works;
    auto* batches = reinterpret_cast<const WorkBatch*>(args_ + sizeof(KernelArgs));
    for (;;) {
      const WorkBatch& b = batches[batch_];
      type_ = b.work_type;
      func_id_ = b.func_id;
      const size_t size = type_ == work_p2p ? sizeof(P2p) : type_ == work_coll ? sizeof(Coll) : coll_reg_size;
      for (uint64_t set = b.offset_bitset; set; set &= set - 1) {
        const uint32_t off = b.offset_base + uint32_t(__builtin_ctzll(set) * size);
        works.push_back(head_.storage == in_args ? args_ + off : head_.work_buf + (off & head_.work_mask));
      }
      batch_ = b.next_jump ? batch_ + int(b.next_jump) : -1;
      if (!b.next_extends) return works;
    }
  }
  // Profiler plugins read these counters.
  void stamp(const std::vector<const char*>& works, ProfilerSlots* slots) {
    if (!slots || !channel_.work_counter) return;
    uint64_t n = *channel_.work_counter;
    for (auto w : works) {
      n++;
      const bool wanted = type_ == work_p2p ? reinterpret_cast<const P2p*>(w)->profiler_enabled
                                            : reinterpret_cast<const Coll*>(w)->profiler_enabled;
      if (!wanted) continue;
      auto& d = slots[channel_id_].data[n % 64];
      d.timestamp = uint64_t(std::chrono::system_clock::now().time_since_epoch().count());
      __atomic_store_n(&d.counter, n, __ATOMIC_RELEASE);
    }
  }

  const std::map<int, Function>& functions_;
  const char* args_;
  const KernelArgs& head_;
  int channel_id_, batch_, type_ = 0, func_id_ = 0;
  KernelComm comm_;
  Channel channel_;
};

// ---- one-rank reduction: dst = src * scalar ---------------------------------------------------
struct OneRank {
  void* dst;
  const void* src;
  size_t n;
  uint64_t arg;
  bool arg_is_ptr;
};
template <class T>
void scale(const OneRank& a) {
  T scalar = arg_as<T>(a.arg);
  if (a.arg_is_ptr) memcpy(static_cast<void*>(&scalar), reinterpret_cast<const void*>(a.arg), sizeof scalar);
  for (size_t i = 0; i < a.n; i++) static_cast<T*>(a.dst)[i] = T(static_cast<const T*>(a.src)[i] * scalar);
}
void run_one_rank(const std::string& kernel, const OneRank& a) {
  const struct {
    const char* type;
    void (*run)(const OneRank&);
  } kinds[] = {{"<signed char>", scale<int8_t>}, {"<unsigned char>", scale<uint8_t>},
               {"<int>", scale<int32_t>},        {"<unsigned int>", scale<uint32_t>},
               {"<long>", scale<int64_t>},       {"<unsigned long>", scale<uint64_t>},
               {"<__half>", scale<_Float16>},    {"<float>", scale<float>},
               {"<double>", scale<double>},      {"<__nv_bfloat16>", scale<BFloat16>}};
  for (auto& k : kinds)
    if (kernel.find(std::string("FuncPreMulSum") + k.type) != std::string::npos) return k.run(a);
  throw Unsupported("element type");
}

}  // namespace
}  // namespace phantom::nccl

namespace phantom {

void run_kernel(const Launch& l) {
  // A kernel that cannot run must not look as if it had: stop here, loudly.
  auto fail = [&](const char* why) {
    log_line(0, "%s: not emulated: %s", l.name.c_str(), why);
    abort();
  };
  try {
    if (l.name.find("oneRankReduce<") != std::string::npos && l.args.size() >= 33)
      return nccl::run_one_rank(l.name, *reinterpret_cast<const nccl::OneRank*>(l.args.data()));
    if (l.kernel.find("ncclDevKernel_") == std::string::npos) return fail("unknown kernel");
    const auto& description = nccl::describe(l.library);
    std::vector<std::thread> blocks;
    for (unsigned b = 0; b < l.grid_x; b++)
      blocks.emplace_back([&, b] {
        try {
          nccl::Block(description, l.args.data(), int(b)).run();
        } catch (const nccl::Aborted&) {
          PLOG(1, "block %u of %s: aborted by NCCL", b, l.kernel.c_str());
        } catch (const std::exception& e) {
          fail(e.what());
        }
      });
    for (auto& t : blocks) t.join();
  } catch (const std::exception& e) {
    fail(e.what());
  }
}

}  // namespace phantom
