#include "nccl-glue/announce/settings.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

namespace nbx::nccl::announce {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view(value);
}

Error wrong(const char* name, std::string_view value, const char* wanted) {
  return Error{std::string(name) + "='" + std::string(value) + "' is not " + wanted};
}

bool parse(std::string_view text, std::int32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

Result<std::vector<std::int32_t>> parse_list(const char* name, std::string_view text) {
  std::vector<std::int32_t> numbers;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    if (!parse(rest.substr(0, comma), numbers.emplace_back()) || numbers.back() < 0) {
      return wrong(name, text, "a list of ranks such as 0,4");
    }
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  return numbers;
}

/// A positive number, or 0 when the variable is not set.
Result<std::int32_t> positive(const char* name) {
  const std::string_view text = variable(name);
  std::int32_t number = 0;
  if (!text.empty() && (!parse(text, number) || number < 1)) {
    return wrong(name, text, "a positive number");
  }
  return number;
}

Result<bool> read_mode(Settings& settings) {
  const std::string_view mode = variable("NBX_MODE");
  if (!mode.empty() && mode != "full" && mode != "inflate") {
    return wrong("NBX_MODE", mode, "full or inflate");
  }
  settings.inflate = mode == "inflate";
  settings.mirror = variable("NBX_MIRROR") == "1";
  for (auto [name, field] :
       {std::pair{"NBX_RANKS", &settings.ranks}, std::pair{"NBX_REAL_RANKS", &settings.real_ranks}}) {
    const Result<std::int32_t> number = positive(name);
    if (!number) {
      return number.error();
    }
    *field = *number;
  }
  if (settings.inflate && settings.ranks == 0) {
    return Error{"NBX_MODE=inflate needs NBX_RANKS, the number of ranks with the ghosts"};
  }
  if (settings.inflate && settings.mirror) {
    return Error{"NBX_MIRROR is for NBX_MODE=full: inflated averages are over the real ranks already"};
  }
  if (settings.mirror && settings.real_ranks == 0) {
    return Error{"NBX_MIRROR=1 needs NBX_REAL_RANKS, the number of real ranks"};
  }
  return true;
}

/// As NCCL reads numbers: any base, and what is none does not count.
std::uint32_t nccl_number(const char* name) {
  const std::string text{variable(name)};
  constexpr long long most = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::clamp(std::strtoll(text.c_str(), nullptr, 0), 0LL, most));
}

}  // namespace

Variables nccl_variables() {
  return {.buffsize = nccl_number("NCCL_BUFFSIZE"),
          .ll_buffsize = nccl_number("NCCL_LL_BUFFSIZE"),
          .ll128_buffsize = nccl_number("NCCL_LL128_BUFFSIZE"),
          .p2p_net_chunksize = nccl_number("NCCL_P2P_NET_CHUNKSIZE"),
          .min_p2p_nchannels = nccl_number("NCCL_MIN_P2P_NCHANNELS"),
          .max_p2p_nchannels = nccl_number("NCCL_MAX_P2P_NCHANNELS")};
}

Result<Settings> settings_from_environment() {
  Settings settings;
  const std::string_view endpoint = variable("NBX_ANNOUNCE");
  if (endpoint.empty()) {
    return settings;
  }
  const std::size_t colon = endpoint.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == endpoint.size()) {
    return wrong("NBX_ANNOUNCE", endpoint, "HOST:PORT");
  }
  settings.host = endpoint.substr(0, colon);
  settings.port = endpoint.substr(colon + 1);
  if (settings.host.size() > 2 && settings.host.front() == '[' && settings.host.back() == ']') {
    settings.host = settings.host.substr(1, settings.host.size() - 2);  // an IPv6 address (RFC 3986, 3.2.2)
  }
  const Result<std::int32_t> seconds = positive("NBX_ANNOUNCE_TIMEOUT");
  if (!seconds) {
    return seconds.error();
  }
  if (*seconds != 0) {
    settings.timeout = std::chrono::seconds(*seconds);
  }
  Result<std::vector<std::int32_t>> map = parse_list("NBX_RANK_MAP", variable("NBX_RANK_MAP"));
  if (!map) {
    return map.error();
  }
  settings.rank_map = *std::move(map);
  if (const Result<bool> mode = read_mode(settings); !mode) {
    return mode.error();
  }
  return settings;
}

}  // namespace nbx::nccl::announce
