#include "port/jit_filter.hpp"

#define ALLOW_EXPERIMENTAL_API  // rte_bpf_convert is, in 22.11
#include <rte_bpf.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace nbx::port {
namespace {

struct DestroyBpf {
  void operator()(rte_bpf* bpf) const noexcept { rte_bpf_destroy(bpf); }
};
struct FreeParameters {
  void operator()(rte_bpf_prm* prm) const noexcept { rte_free(prm); }
};

class JitFilter final : public capture::Filter {
 public:
  JitFilter(std::unique_ptr<rte_bpf, DestroyBpf> bpf, bool encodable) noexcept : bpf_(std::move(bpf)) {
    if (encodable) {
      rte_bpf_get_jit(bpf_.get(), &jit_);
    }
  }

  [[nodiscard]] bool matches(ConstBytes frame) noexcept override {
    // The program loads from an mbuf. A frame's own may describe it differently until it is sent.
    mbuf_->buf_addr = const_cast<std::byte*>(frame.data());  // only read
    mbuf_->pkt_len = static_cast<std::uint32_t>(frame.size());
    mbuf_->data_len = static_cast<std::uint16_t>(frame.size());
    return (jit_.func != nullptr ? jit_.func(mbuf_.get()) : rte_bpf_exec(bpf_.get(), mbuf_.get())) != 0;
  }

 private:
  std::unique_ptr<rte_bpf, DestroyBpf> bpf_;
  rte_bpf_jit jit_{};                                              // no function: interpreted
  std::unique_ptr<rte_mbuf> mbuf_ = std::make_unique<rte_mbuf>();  // one segment without headroom
};

// What DPDK up to 22.11 gets wrong; tests/property/test_capture_filter.cpp compares the outcome with libpcap's.

/// rte_bpf_convert names the accumulator as the index of indirect loads; its X is register 7.
std::vector<ebpf_insn> with_index(const rte_bpf_prm& prm) {
  std::vector<ebpf_insn> code(prm.ins, prm.ins + prm.nb_ins);
  for (ebpf_insn& ins : code) {
    if ((ins.code & ~BPF_SIZE(0xff)) == (BPF_LD | BPF_IND)) {
      ins.src_reg = EBPF_REG_7;
    }
  }
  return code;
}

/// For x86 the mask of a TEST is written in one byte when it fits. There is no such instruction: the machine would
/// take the bytes that follow for the rest.
bool encodable(const std::vector<ebpf_insn>& code) noexcept {
  return std::none_of(code.begin(), code.end(), [](const ebpf_insn& ins) {
    return ins.code == (BPF_JMP | BPF_JSET | BPF_K) && ins.imm >= INT8_MIN && ins.imm <= INT8_MAX;
  });
}

}  // namespace

Result<std::unique_ptr<capture::Filter>> make_jit_filter(const std::string& expression) {
  if (expression.empty()) {
    return std::unique_ptr<capture::Filter>();
  }
  const auto program = capture::compile_filter(expression);
  if (!program) {
    return Error{"filter: " + program.error().message};
  }
  const std::unique_ptr<rte_bpf_prm, FreeParameters> prm(rte_bpf_convert(program->get()));
  if (!prm) {
    return Error{"filter: DPDK cannot convert it: " + std::string(rte_strerror(rte_errno))};
  }
  const std::vector<ebpf_insn> code = with_index(*prm);
  prm->ins = code.data();
  std::unique_ptr<rte_bpf, DestroyBpf> bpf(rte_bpf_load(prm.get()));
  if (!bpf) {
    return Error{"filter: DPDK cannot load it: " + std::string(rte_strerror(rte_errno))};
  }
  return std::unique_ptr<capture::Filter>(std::make_unique<JitFilter>(std::move(bpf), encodable(code)));
}

}  // namespace nbx::port
