#include "base/net.hpp"

#include <arpa/inet.h>

#include <cstdio>

namespace nbx {

std::string to_string(const Mac& m) {
  std::array<char, 18> text{};
  const auto& o = m.octets;
  std::snprintf(text.data(), text.size(), "%02x:%02x:%02x:%02x:%02x:%02x", o[0], o[1], o[2], o[3], o[4], o[5]);
  return text.data();
}

std::string to_string(const IpAddress& a) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (a.is_v4()) {
    inet_ntop(AF_INET, a.octets.data() + 12, text.data(), text.size());
  } else {
    inet_ntop(AF_INET6, a.octets.data(), text.data(), text.size());
  }
  return text.data();
}

std::optional<Mac> parse_mac(std::string_view text) {
  Mac m;
  if (text.size() != 17) {
    return std::nullopt;
  }
  const auto hex = [](char c) -> int {
    if (c >= '0' && c <= '9') {
      return c - '0';
    }
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  for (std::size_t i = 0; i < 6; ++i) {
    const int hi = hex(text[i * 3]);
    const int lo = hex(text[i * 3 + 1]);
    if (hi < 0 || lo < 0 || (i < 5 && text[i * 3 + 2] != ':')) {
      return std::nullopt;
    }
    m.octets[i] = static_cast<std::uint8_t>(hi * 16 + lo);
  }
  return m;
}

std::optional<IpAddress> parse_ip(std::string_view text) {
  const std::string s{text};
  IpAddress a;
  std::array<std::uint8_t, 4> v4{};
  if (inet_pton(AF_INET, s.c_str(), v4.data()) == 1) {
    return IpAddress::v4((std::uint32_t{v4[0]} << 24U) | (std::uint32_t{v4[1]} << 16U) | (std::uint32_t{v4[2]} << 8U) |
                         v4[3]);
  }
  if (inet_pton(AF_INET6, s.c_str(), a.octets.data()) == 1) {
    return a;
  }
  return std::nullopt;
}

IpAddress link_local_from_mac(const Mac& m) {
  IpAddress a;
  a.octets = {0xfe, 0x80, 0, 0, 0, 0, 0, 0};
  a.octets[8] = m.octets[0] ^ 0x02U;
  a.octets[9] = m.octets[1];
  a.octets[10] = m.octets[2];
  a.octets[11] = 0xff;
  a.octets[12] = 0xfe;
  a.octets[13] = m.octets[3];
  a.octets[14] = m.octets[4];
  a.octets[15] = m.octets[5];
  return a;
}

IpAddress solicited_node(const IpAddress& a) {
  IpAddress s;
  s.octets = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a.octets[13], a.octets[14], a.octets[15]};
  return s;
}

}  // namespace nbx
