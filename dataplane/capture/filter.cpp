#include "capture/filter.hpp"

#include <pcap/pcap.h>

namespace nbx::capture {
namespace {

struct ClosePcap {
  void operator()(pcap_t* pcap) const noexcept { pcap_close(pcap); }
};

}  // namespace

void FreeProgram::operator()(bpf_program* program) const noexcept {
  pcap_freecode(program);
  delete program;
}

Result<BpfProgram> compile_filter(const std::string& expression) {
  constexpr int longest_frame = 0xffff;
  const std::unique_ptr<pcap_t, ClosePcap> ethernet(pcap_open_dead(DLT_EN10MB, longest_frame));
  if (!ethernet) {
    return Error{"libpcap has no memory"};
  }
  BpfProgram program(new bpf_program{});
  if (pcap_compile(ethernet.get(), program.get(), expression.c_str(), 1, PCAP_NETMASK_UNKNOWN) != 0) {
    return Error{pcap_geterr(ethernet.get())};
  }
  return program;
}

}  // namespace nbx::capture
