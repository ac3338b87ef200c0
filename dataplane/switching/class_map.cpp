// The comparison of two ends.
#include "switching/class_map.hpp"

namespace nbx::switching {
namespace {

std::string seen(const std::string& name, const ClassMap& map, std::uint8_t priority) {
  const bool lossless = ((map.lossless >> priority) & 1U) != 0;
  return "priority " + std::to_string(priority) + (lossless ? " (lossless)" : " (lossy)") + " at " + name;
}

void compare(const std::string& what, const std::string& a_name, const ClassMap& a, std::uint8_t of_a,
             const std::string& b_name, const ClassMap& b, std::uint8_t of_b, std::vector<std::string>& out) {
  const bool lossless_a = ((a.lossless >> of_a) & 1U) != 0;
  const bool lossless_b = ((b.lossless >> of_b) & 1U) != 0;
  if (of_a != of_b || lossless_a != lossless_b) {
    out.push_back(what + " is " + seen(a_name, a, of_a) + " and " + seen(b_name, b, of_b));
  }
}

}  // namespace

std::vector<std::string> disagreements(const std::string& a_name, const ClassMap& a, const std::string& b_name,
                                       const ClassMap& b) {
  std::vector<std::string> out;
  if (a.trust != b.trust) {
    const auto trusts = [](const ClassMap& map) { return map.trust == Trust::dscp ? " trusts DSCP" : " trusts PCP"; };
    out.push_back(a_name + trusts(a) + ", " + b_name + trusts(b));
    return out;
  }
  if (a.trust == Trust::dscp) {
    for (std::uint8_t d = 0; d < 64; ++d) {
      compare("DSCP " + std::to_string(d), a_name, a, a.of_dscp[d], b_name, b, b.of_dscp[d], out);
    }
  } else {
    for (std::uint8_t p = 0; p < 8; ++p) {
      compare("PCP " + std::to_string(p), a_name, a, a.of_pcp[p], b_name, b, b.of_pcp[p], out);
    }
  }
  return out;
}

}  // namespace nbx::switching
