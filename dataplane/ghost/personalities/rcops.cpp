// rcops: every reliable-connection operation once, in both roles, with the data of each step checked. The program that
// speaks it on a real node is tests/vm/image/guest/rcops.c, whose head describes the exchange.
#include <cstring>

#include "ghost/personalities/make.hpp"
#include "ghost/personalities/slots.hpp"
#include "ghost/personalities/wire_types.hpp"

namespace nbx::ghost {

namespace {

constexpr std::uint32_t bulk_size = 1 << 20;
constexpr std::uint32_t half = bulk_size / 2;
constexpr std::uint64_t counters_offset = bulk_size;
constexpr std::uint64_t signals_offset = bulk_size + 256;
constexpr std::uint32_t memory_size = bulk_size + 4096;
constexpr std::uint32_t signal_size = 16;
constexpr std::uint32_t send_immediate = 0x1122'3344;
constexpr std::uint32_t write_immediate = 0x5566'7788;
constexpr std::uint64_t counter_start = 40;
constexpr std::uint64_t counter_swapped = 100;
constexpr std::uint64_t counter_added = 7;

std::byte pattern(std::uint32_t i, unsigned step) {
  return std::byte(static_cast<std::uint8_t>(i * 7 + step + i / 251));
}

class RcopsBase : public Session {
 protected:
  explicit RcopsBase(const Context& context)
      : Session(context),
        memory_(context.transport.memory(context.ghost), 1, memory_size, rdma::Backing::memory,
                rdma::access::local_write | rdma::access::remote_write | rdma::access::remote_read |
                    rdma::access::remote_atomic) {}

  void adjust(rdma::QpAttr& attr) const override {
    attr.access = rdma::access::remote_write | rdma::access::remote_read | rdma::access::remote_atomic;
  }
  [[nodiscard]] rdma::Sge at(std::uint64_t offset, std::uint32_t length) const {
    return {memory_.addr() + offset, length, memory_.key()};
  }
  void fill(std::uint32_t length, unsigned step) {
    for (std::uint32_t i = 0; i < length; ++i) {
      memory_.bytes(0)[i] = pattern(i, step);
    }
  }
  void expect(bool right) {
    if (!right) {
      fail();
    }
  }
  [[nodiscard]] bool matches(std::uint64_t offset, std::uint32_t length, unsigned step) {
    for (std::uint32_t i = 0; i < length; ++i) {
      if (memory_.bytes(0)[offset + i] != pattern(i, step)) {
        return false;
      }
    }
    return true;
  }
  // Atomics work on host-order integers (IBTA 9.4.5 leaves the order to the HCA; both ends are little-endian here).
  [[nodiscard]] std::uint64_t counter(unsigned which) {
    std::uint64_t value = 0;
    std::memcpy(&value, memory_.bytes(0).data() + counters_offset + which * 8, 8);
    return value;
  }
  void set_counter(std::uint64_t value) { std::memcpy(memory_.bytes(0).data() + counters_offset, &value, 8); }
  void signal(Instant now) { post_send({.local = at(signals_offset + 1024, signal_size)}, now); }

  Slots memory_;
};

class RcopsServer final : public RcopsBase {
 public:
  explicit RcopsServer(const Context& context) : RcopsBase(context) { set_counter(counter_start); }

  void opened(ConstBytes, Instant now) override {
    BufferAdvert advert{};
    advert.addr = memory_.addr();
    advert.rkey = memory_.key();
    advert.size = bulk_size;
    std::memcpy(memory_.bytes(0).data() + signals_offset + 512, &advert, sizeof advert);
    post_send({.local = at(signals_offset + 512, sizeof advert)}, now);
  }
  [[nodiscard]] bool succeeded() const override { return Session::succeeded() && steps_ == 5; }

 private:
  void post_receives() override {
    post_recv(0, at(0, half));
    post_recv(1, at(half, half));
    for (std::uint64_t i = 2; i < 5; ++i) {
      post_recv(i, at(signals_offset, signal_size));
    }
  }
  void received(const rdma::Completion& c, Instant now) override {
    switch (++steps_) {
      case 1:
        length_ = c.byte_len;
        expect(matches(0, length_, 1));
        break;
      case 2:
        expect(c.byte_len == length_ && c.has_imm && c.imm_data == send_immediate && matches(half, length_, 2));
        signal(now);
        break;
      case 3:
        expect(matches(0, length_, 3));
        signal(now);
        break;
      case 4:
        expect(c.opcode == rdma::WcOpcode::recv_rdma_with_imm && c.imm_data == write_immediate &&
               matches(0, length_, 4));
        fill(length_, 5);
        signal(now);
        break;
      default:
        expect(counter(0) == counter_swapped + counter_added);
        break;
    }
  }
  void sent(const rdma::Completion&, Instant) override {}

  unsigned steps_ = 0;
  std::uint32_t length_ = 0;
};

class RcopsClient final : public RcopsBase {
 public:
  RcopsClient(const Context& context, const RcopsOptions& options) : RcopsBase(context), length_(options.length) {}

  void opened(ConstBytes, Instant) override {}
  [[nodiscard]] bool succeeded() const override { return Session::succeeded() && step_ == Step::done; }

 private:
  enum class Step : std::uint8_t {
    advert,
    send,
    send_imm,
    sends_checked,
    write,
    write_checked,
    write_imm,
    write_imm_checked,
    read,
    swap,
    add,
    last,
    done,
  };

  void post_receives() override {
    for (std::uint64_t i = 0; i < 4; ++i) {
      post_recv(i, at(signals_offset + i * signal_size, signal_size));
    }
  }
  void received(const rdma::Completion&, Instant now) override {
    switch (step_) {
      case Step::advert:
        std::memcpy(&peer_, memory_.bytes(0).data() + signals_offset, sizeof peer_);
        fill(length_, 1);
        step_ = Step::send;
        post_send({.local = at(0, length_)}, now);
        break;
      case Step::sends_checked:
        fill(length_, 3);
        step_ = Step::write;
        rdma(rdma::WrOpcode::rdma_write, 0, now);
        break;
      case Step::write_checked:
        fill(length_, 4);
        step_ = Step::write_imm;
        rdma(rdma::WrOpcode::rdma_write_with_imm, write_immediate, now);
        break;
      case Step::write_imm_checked:
        fill(length_, 0);
        step_ = Step::read;
        rdma(rdma::WrOpcode::rdma_read, 0, now);
        break;
      case Step::send:
      case Step::send_imm:
      case Step::write:
      case Step::write_imm:
        early_signal_ = true;  // the peer's answer overtook our completion: its acknowledgement was lost
        break;
      case Step::read:
      case Step::swap:
      case Step::add:
      case Step::last:
      case Step::done:
        fail();
        break;
    }
  }
  void sent(const rdma::Completion&, Instant now) override {
    switch (step_) {
      case Step::send:
        fill(length_, 2);
        step_ = Step::send_imm;
        post_send({.opcode = rdma::WrOpcode::send_with_imm, .local = at(0, length_), .imm_data = send_immediate}, now);
        break;
      case Step::send_imm:
        await(Step::sends_checked, now);
        break;
      case Step::write:
        signal(now);
        await(Step::write_checked, now);
        break;
      case Step::write_imm:
        await(Step::write_imm_checked, now);
        break;
      case Step::read:
        expect(matches(0, length_, 5));
        step_ = Step::swap;
        atomic(rdma::WrOpcode::atomic_cmp_and_swp, counter_start, counter_swapped, now);
        break;
      case Step::swap:
        expect(counter(1) == counter_start);
        step_ = Step::add;
        atomic(rdma::WrOpcode::atomic_fetch_and_add, counter_added, 0, now);
        break;
      case Step::add:
        expect(counter(1) == counter_swapped);
        step_ = Step::last;
        signal(now);
        break;
      case Step::last:
        step_ = Step::done;
        disconnect(now);
        break;
      case Step::advert:
      case Step::sends_checked:
      case Step::write_checked:
      case Step::write_imm_checked:
      case Step::done:
        break;  // a signal of ours has been acknowledged
    }
  }
  void await(Step step, Instant now) {
    step_ = step;
    if (early_signal_) {
      early_signal_ = false;
      received({}, now);
    }
  }
  void rdma(rdma::WrOpcode opcode, std::uint32_t immediate, Instant now) {
    post_send({.opcode = opcode,
               .local = at(0, length_),
               .remote_addr = peer_.addr.value(),
               .rkey = peer_.rkey.value(),
               .imm_data = immediate},
              now);
  }
  void atomic(rdma::WrOpcode opcode, std::uint64_t compare_add, std::uint64_t swap, Instant now) {
    post_send({.opcode = opcode,
               .local = at(counters_offset + 8, 8),
               .remote_addr = peer_.addr.value() + counters_offset,
               .rkey = peer_.rkey.value(),
               .compare_add = compare_add,
               .swap = swap},
              now);
  }

  std::uint32_t length_;
  BufferAdvert peer_{};
  Step step_ = Step::advert;
  bool early_signal_ = false;
};

}  // namespace

std::unique_ptr<Personality> make(const RcopsOptions& options, const Context& context) {
  if (options.connect.empty()) {
    return std::make_unique<Service>(context, options.port,
                                     [](const Context& c) { return std::make_unique<RcopsServer>(c); });
  }
  return std::make_unique<Caller>(context, options.connect, options.port, Duration::zero(),
                                  [options](const Context& c) { return std::make_unique<RcopsClient>(c, options); });
}

}  // namespace nbx::ghost
