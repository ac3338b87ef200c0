// Stage wire: the ICRC over a packet, and the parser with and without it.
#include <cstring>
#include <stdexcept>

#include "bench/meter.hpp"
#include "bench/packets.hpp"
#include "wire/icrc.hpp"
#include "wire/parse.hpp"

namespace nbx::bench {
namespace {

constexpr unsigned packets = 256;

std::vector<std::vector<std::byte>> frames_of(unsigned bytes) {
  std::vector<std::vector<std::byte>> all;
  for (unsigned i = 0; i < packets; ++i) {
    const wire::Encapsulation to_ghost{node_to_ghost(i)};
    std::vector<std::byte> frame(to_ghost.frame_size(bytes));
    to_ghost.begin(frame, {.opcode = wire::Opcode::rc_rdma_write_middle, .dest_qpn = Qpn{i}, .psn = Psn{i}}, bytes);
    to_ghost.seal(frame, bytes);
    all.push_back(std::move(frame));
  }
  return all;
}

class Icrc final : public Case {
 public:
  explicit Icrc(unsigned bytes)
      : Case({.stage = "icrc", .bytes = bytes, .wire_bytes = wire_bytes(bytes)}), frames_(frames_of(bytes)) {}

  std::uint64_t round(Stopwatch& watch) override {
    watch.start();
    for (const auto& frame : frames_) {
      sum_ += wire::icrc(frame, 14, 42, frame.size() - 4, false);
    }
    watch.stop();
    return frames_.size();
  }
  [[nodiscard]] std::uint64_t checksum() const override { return sum_; }

 private:
  std::vector<std::vector<std::byte>> frames_;
  std::uint64_t sum_ = 0;
};

class Parse final : public Case {
 public:
  Parse(unsigned bytes, bool verify)
      : Case({.stage = "parse",
              .variant = verify ? "ICRC checked" : "ICRC trusted",
              .bytes = bytes,
              .wire_bytes = wire_bytes(bytes)}),
        policy_{.verify_icrc = verify},
        frames_(frames_of(bytes)) {}

  std::uint64_t round(Stopwatch& watch) override {
    std::uint64_t refused = 0;
    watch.start();
    for (const auto& frame : frames_) {
      wire::Parsed parsed;
      refused += wire::parse(frame, policy_, parsed) == Drop::none ? 0 : 1;
      sum_ += parsed.psn.value;
    }
    watch.stop();
    if (refused != 0) {
      throw std::runtime_error("the parser refused a packet of the bench");
    }
    return frames_.size();
  }
  [[nodiscard]] std::uint64_t checksum() const override { return sum_; }

 private:
  wire::ParsePolicy policy_;
  std::vector<std::vector<std::byte>> frames_;
  std::uint64_t sum_ = 0;
};

}  // namespace

Cases wire_cases() {
  Cases cases;
  for (const unsigned bytes : {64U, 1024U, 4096U}) {
    cases.push_back(std::make_unique<Icrc>(bytes));
    cases.push_back(std::make_unique<Parse>(bytes, false));
    cases.push_back(std::make_unique<Parse>(bytes, true));
  }
  return cases;
}

}  // namespace nbx::bench
