// Which frames a capture takes: an expression in tcpdump's syntax (pcap-filter(7)).
#pragma once

#include <memory>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"

struct bpf_program;

namespace nbx::capture {

/// Decides for one worker. Costs no allocation.
class Filter {
 public:
  virtual ~Filter() = default;
  /// `frame` begins with its Ethernet header and is shorter than 64 KiB.
  [[nodiscard]] virtual bool matches(ConstBytes frame) noexcept = 0;

 protected:
  Filter() = default;
  Filter(const Filter&) = default;
  Filter& operator=(const Filter&) = default;
};

/// An expression as classic BPF for Ethernet frames, made by libpcap.
struct FreeProgram {
  void operator()(bpf_program* program) const noexcept;
};
using BpfProgram = std::unique_ptr<bpf_program, FreeProgram>;

/// The error is libpcap's own. Names of hosts and networks are looked up.
[[nodiscard]] Result<BpfProgram> compile_filter(const std::string& expression);

}  // namespace nbx::capture
