#include "bench/testpmd.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string_view>
#include <vector>

namespace nbx::bench {
namespace {

/// Ends the pipe's process group with it: `timeout` sees to that.
std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  std::string text;
  std::array<char, 4096> part{};
  while (pipe != nullptr) {
    const std::size_t n = std::fread(part.data(), 1, part.size(), pipe.get());
    if (n == 0) {
      break;
    }
    text.append(part.data(), n);
  }
  return text;
}

/// All numbers behind "Tx-pps:".
std::vector<double> rates_in(const std::string& text) {
  constexpr std::string_view word = "Tx-pps:";
  std::vector<double> rates;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    rates.push_back(std::strtod(text.c_str() + at + word.size(), nullptr));
  }
  return rates;
}

}  // namespace

Result<double> testpmd_rate(const std::string& mode, unsigned frame_bytes) {
  if (output_of("command -v dpdk-testpmd").empty()) {
    return Error{"dpdk-testpmd is not installed (Debian: dpdk-dev)"};
  }
  std::ostringstream command;
  command << "timeout 5 dpdk-testpmd --no-huge -m 256 --no-pci --no-telemetry --file-prefix nbx-bench --log-level=error"
          << " -l 0,1 --vdev net_null0,size=" << frame_bytes << " --vdev net_null1,size=" << frame_bytes
          << " -- --forward-mode=" << mode << " --burst=32 --stats-period=1 --total-num-mbufs=4096"
          << " --mbuf-size=4400 --max-pkt-len=4300 </dev/null 2>&1";
  const std::string said = output_of(command.str());
  // Two ports a period; the first period begins before the forwarding does.
  std::vector<double> rates = rates_in(said);
  std::vector<double> sums;
  for (std::size_t i = 2; i + 1 < rates.size(); i += 2) {
    sums.push_back(rates[i] + rates[i + 1]);
  }
  if (sums.empty()) {
    return Error{"dpdk-testpmd did not forward; it said:\n" + said.substr(0, 2000)};
  }
  std::sort(sums.begin(), sums.end());
  return sums[sums.size() / 2];
}

}  // namespace nbx::bench
