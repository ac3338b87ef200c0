#include "config/scalar.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/wide.hpp"
#include "capture/filter.hpp"
#include "config/source.hpp"

namespace nbx::config {
namespace {

constexpr std::uint64_t mask32 = 0xffff'ffff;

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

// Largest first: a value is printed in the largest unit that divides it.
constexpr auto time_units = std::to_array<Unit>({{"min", 60'000'000'000'000},
                                                 {"s", 1'000'000'000'000},
                                                 {"ms", 1'000'000'000},
                                                 {"us", 1'000'000},
                                                 {"ns", 1'000},
                                                 {"ps", 1}});
constexpr auto rate_units = std::to_array<Unit>(
    {{"Tb/s", 1'000'000'000'000}, {"Gb/s", 1'000'000'000}, {"Mb/s", 1'000'000}, {"kb/s", 1'000}, {"b/s", 1}});
constexpr auto size_units = std::to_array<Unit>({{"GiB", 1U << 30U},
                                                 {"GB", 1'000'000'000},
                                                 {"MiB", 1U << 20U},
                                                 {"MB", 1'000'000},
                                                 {"KiB", 1U << 10U},
                                                 {"kB", 1'000},
                                                 {"B", 1}});

/// "12.5us" cut into its digits and its unit.
struct Cut {
  std::string_view integer;
  std::string_view fraction;
  std::string_view unit;
  bool negative = false;
};

std::optional<Cut> cut(std::string_view text) {
  Cut out;
  if (text.starts_with('-')) {
    out.negative = true;
    text.remove_prefix(1);
  }
  const auto digits = [&text] {
    const std::size_t n = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string_view run = text.substr(0, n);
    text.remove_prefix(n);
    return run;
  };
  out.integer = digits();
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    out.fraction = digits();
    if (out.fraction.empty()) {
      return std::nullopt;
    }
  }
  if (text.starts_with(' ')) {
    text.remove_prefix(1);
  }
  out.unit = text;
  return out.integer.empty() ? std::nullopt : std::optional(out);
}

std::string listed(std::span<const Unit> units) {
  std::string all;
  for (std::size_t i = units.size(); i-- > 0;) {
    all += std::string(units[i].name) + (i > 1 ? ", " : i == 1 ? " or " : "");
  }
  return all;
}

const Unit* find_unit(std::span<const Unit> units, std::string_view name) {
  const auto found = std::find_if(units.begin(), units.end(), [&](const Unit& unit) { return unit.name == name; });
  return found == units.end() ? nullptr : &*found;
}

/// The exact product of the number and its unit; an error when it is not a whole number or too large.
Result<std::uint64_t> scaled(const Cut& number, const Unit& unit, std::string_view text, std::string_view smallest) {
  constexpr uint128 limit = std::numeric_limits<std::int64_t>::max();
  constexpr std::size_t digits_max = 19;
  const std::string digits = std::string(number.integer) + std::string(number.fraction);
  uint128 value = 0;
  uint128 divisor = 1;
  for (const char c : digits.substr(0, digits_max)) {
    value = value * 10 + static_cast<unsigned>(c - '0');
  }
  for (std::size_t i = 0; i < number.fraction.size() && i < digits_max; ++i) {
    divisor *= 10;
  }
  value *= unit.factor;
  if (number.integer.size() > digits_max || value / divisor > limit) {
    return Error{"'" + std::string(text) + "' is too large"};
  }
  if (digits.size() > digits_max || value % divisor != 0) {
    return Error{"'" + std::string(text) + "' is finer than " + std::string(smallest)};
  }
  return static_cast<std::uint64_t>(value / divisor);
}

/// What a wrong unit was probably meant to be.
std::string unit_hint(const Cut& number, std::span<const Unit> units) {
  std::string digits(number.integer);
  if (!number.fraction.empty()) {
    digits += "." + std::string(number.fraction);
  }
  std::string lower(number.unit);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const Unit& unit : units) {
    std::string name(unit.name);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::string bare = name.substr(0, name.find('/'));
    const bool same = lower == name || lower == bare || lower == bare + "ps" || lower == bare.substr(0, 1) + "bit" ||
                      lower == bare.substr(0, 1) + "bit/s";
    if (same) {
      return "; did you mean " + digits + std::string(unit.name) + "?";
    }
  }
  return {};
}

struct Quantity {
  std::string_view noun;
  std::string_view example;  // unit in the hint for a bare number
  std::span<const Unit> units;
};
constexpr Quantity duration_quantity{"a duration", "ms", time_units};
constexpr Quantity rate_quantity{"a rate", "Gb/s", rate_units};
constexpr Quantity size_quantity{"a size", "B", size_units};

std::string pattern(std::span<const Unit> units) {
  std::string all;
  for (const Unit& unit : units) {
    all += (all.empty() ? "" : "|") + std::string(unit.name);
  }
  return R"(^[0-9]+(\.[0-9]+)? ?()" + all + ")$";
}

Result<std::uint64_t> parse_quantity(const Word& word, const Quantity& quantity) {
  const std::string quoted = "'" + std::string(word.text) + "'";
  const std::optional<Cut> number = cut(word.text);
  if (!number) {
    return Error{quoted + " is not " + std::string(quantity.noun) + ": a number with " + listed(quantity.units)};
  }
  if (number->negative) {
    return Error{quoted + " is negative"};
  }
  if (number->unit.empty()) {
    if (number->integer == "0" && number->fraction.empty()) {
      return std::uint64_t{0};
    }
    return Error{quoted + " has no unit; did you mean " + std::string(word.text) + std::string(quantity.example) + "?"};
  }
  if (const Unit* unit = find_unit(quantity.units, number->unit)) {
    return scaled(*number, *unit, word.text, "1 " + std::string(quantity.units.back().name));
  }
  return Error{quoted + " has a unit that is none of " + listed(quantity.units) + unit_hint(*number, quantity.units)};
}

std::string format_quantity(std::uint64_t value, std::span<const Unit> units) {
  if (value == 0) {
    return "0";
  }
  for (const Unit& unit : units) {
    if (value % unit.factor == 0) {
      return std::to_string(value / unit.factor) + std::string(unit.name);
    }
  }
  return {};
}

Json string_pattern(const std::string& regex) { return {{"type", "string"}, {"pattern", regex}}; }

Json quantity_schema(std::span<const Unit> units) {
  return {{"anyOf", {string_pattern(pattern(units)), {{"const", 0}}}}};
}

Result<std::uint64_t> parse_24bit(const Word& word) {
  Result<std::uint64_t> value = parse_integer(word);
  if (value.ok() && *value > mask24) {
    return Error{std::string(word.text) + " has more than 24 bits"};
  }
  return value;
}

std::string hex(std::uint64_t value) {
  std::array<char, 19> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, 16).ptr;
  return "0x" + std::string(text.data(), end);
}

Result<double> parse_double(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
    return Error{"'" + std::string(text) + "' is not a number"};
  }
  return value;
}

std::string format_double(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace

Result<std::uint64_t> parse_integer(const Word& word) {
  std::string_view digits = word.text;
  const int base = digits.starts_with("0x") ? 16 : 10;
  digits.remove_prefix(base == 16 ? 2 : 0);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  const bool whole = end == digits.data() + digits.size();
  if (error == std::errc::result_out_of_range && whole) {
    return Error{"'" + std::string(word.text) + "' has more than 64 bits"};
  }
  if (error != std::errc{} || !whole) {
    return Error{"'" + std::string(word.text) + "' is not a whole number, decimal or 0x hexadecimal"};
  }
  if (word.quoted) {
    return Error{"'" + std::string(word.text) + "' is quoted, which makes it text; remove the quotes"};
  }
  return value;
}

Json integer_schema(const Limits& limits) {
  return {{"type", "integer"}, {"minimum", limits.min}, {"maximum", limits.max}};
}

Error not_a_word_of(const Word& word, std::span<const std::string> known) {
  const std::string text(word.text);
  const std::string hint = did_you_mean(text, {known.begin(), known.end()});
  if (!hint.empty()) {
    return {"unknown word '" + text + "'" + hint};
  }
  std::string all;
  for (const std::string& each : known) {
    all += (all.empty() ? "" : ", ") + each;
  }
  return {"unknown word '" + text + "'; known are " + all};
}

Json word_schema(std::span<const std::string> known) { return {{"enum", known}}; }

std::string Scalar<bool>::type() { return "`true`, `false`"; }
Json Scalar<bool>::schema(const Limits& /*limits*/) {
  return {{"anyOf", {{{"type", "boolean"}}, {{"enum", {"on", "off"}}}}}};
}
Result<bool> Scalar<bool>::parse(const Word& word) {
  if (word.text == "true" || word.text == "on") {
    return true;
  }
  if (word.text == "false" || word.text == "off") {
    return false;
  }
  return Error{"'" + std::string(word.text) + "' is neither true (on) nor false (off)"};
}
std::string Scalar<bool>::format(const bool& value) { return value ? "true" : "false"; }

std::string Scalar<Factor>::type() { return "number above 0"; }
Json Scalar<Factor>::schema(const Limits& /*limits*/) { return {{"type", "number"}, {"exclusiveMinimum", 0}}; }
Result<Factor> Scalar<Factor>::parse(const Word& word) {
  const Result<double> value = parse_double(word.text);
  if (!value.ok()) {
    return value.error();
  }
  return *value > 0 ? Result<Factor>(Factor{*value}) : Error{std::string(word.text) + " is not above 0"};
}
std::string Scalar<Factor>::format(const Factor& value) { return format_double(value.value); }

std::string Scalar<std::string>::type() { return "text"; }
Json Scalar<std::string>::schema(const Limits& /*limits*/) { return {{"type", "string"}}; }
Result<std::string> Scalar<std::string>::parse(const Word& word) { return std::string(word.text); }
std::string Scalar<std::string>::format(const std::string& value) { return value; }

std::string Scalar<Probability>::type() { return "probability"; }
Json Scalar<Probability>::schema(const Limits& /*limits*/) {
  const Json number = {{"type", "number"}, {"minimum", 0}, {"maximum", 1}};
  return {{"anyOf", {number, string_pattern(R"(^(100(\.0+)?|[0-9]{1,2}(\.[0-9]+)?)%$)")}}};
}
Result<Probability> Scalar<Probability>::parse(const Word& word) {
  const bool percent = word.text.ends_with('%');
  const Result<double> number = parse_double(word.text.substr(0, word.text.size() - (percent ? 1 : 0)));
  if (!number.ok()) {
    return Error{"'" + std::string(word.text) + "' is not a probability: a number from 0 to 1, or a percentage"};
  }
  const double value = percent ? *number / 100 : *number;
  if (value < 0 || value > 1) {
    const bool meant_percent = !percent && value > 1 && value <= 100;
    return Error{"'" + std::string(word.text) + "' is not between " + (percent ? "0% and 100%" : "0 and 1") +
                 (meant_percent ? "; did you mean " + std::string(word.text) + "%?" : "")};
  }
  return Probability{value};
}
std::string Scalar<Probability>::format(const Probability& value) { return format_double(value.value); }

std::string Scalar<HexBytes>::type() { return "hexadecimal digits"; }
Json Scalar<HexBytes>::schema(const Limits& /*limits*/) { return string_pattern("^([0-9a-fA-F]{2}[ :]?)*$"); }
Result<HexBytes> Scalar<HexBytes>::parse(const Word& word) {
  HexBytes out;
  for (std::string_view rest = word.text; !rest.empty();) {
    unsigned octet = 0;
    if (rest.size() < 2 || std::from_chars(rest.data(), rest.data() + 2, octet, 16).ptr != rest.data() + 2) {
      return Error{"'" + std::string(word.text) + "' is not made of pairs of hexadecimal digits"};
    }
    out.value.push_back(static_cast<std::byte>(octet));
    rest.remove_prefix(2);
    rest.remove_prefix(!rest.empty() && (rest.front() == ' ' || rest.front() == ':') ? 1 : 0);
  }
  return out;
}
std::string Scalar<HexBytes>::format(const HexBytes& value) {
  std::string text;
  for (const std::byte octet : value.value) {
    text += hex(0x100U + static_cast<unsigned>(octet)).substr(3);
  }
  return text;
}

std::string Scalar<Mac>::type() { return "MAC address"; }
Json Scalar<Mac>::schema(const Limits& /*limits*/) { return string_pattern("^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$"); }
Result<Mac> Scalar<Mac>::parse(const Word& word) {
  const std::optional<Mac> mac = parse_mac(word.text);
  if (!mac) {
    return Error{"'" + std::string(word.text) + "' is not a MAC address such as 02:00:00:00:00:01"};
  }
  if (mac->is_multicast()) {
    return Error{"'" + std::string(word.text) + "' is a multicast address"};
  }
  return *mac;
}
std::string Scalar<Mac>::format(const Mac& value) { return to_string(value); }

std::string Scalar<IpAddress>::type() { return "IP address"; }
Json Scalar<IpAddress>::schema(const Limits& /*limits*/) {
  return string_pattern(R"(^([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)$)");
}
Result<IpAddress> Scalar<IpAddress>::parse(const Word& word) {
  const std::optional<IpAddress> ip = parse_ip(word.text);
  if (!ip) {
    return Error{"'" + std::string(word.text) + "' is not an IPv4 or IPv6 address"};
  }
  return *ip;
}
std::string Scalar<IpAddress>::format(const IpAddress& value) { return to_string(value); }

std::string Scalar<AddressText>::type() { return Scalar<IpAddress>::type(); }
Json Scalar<AddressText>::schema(const Limits& limits) { return Scalar<IpAddress>::schema(limits); }
Result<AddressText> Scalar<AddressText>::parse(const Word& word) {
  const Result<IpAddress> ip = Scalar<IpAddress>::parse(word);
  return ip.ok() ? Result<AddressText>(AddressText{to_string(*ip)}) : ip.error();
}
std::string Scalar<AddressText>::format(const AddressText& value) { return value.value; }

std::string Scalar<Subnet>::type() { return "IP address/prefix length"; }
Json Scalar<Subnet>::schema(const Limits& /*limits*/) {
  return string_pattern(R"(^([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)/[0-9]{1,3}$)");
}
Result<Subnet> Scalar<Subnet>::parse(const Word& word) {
  const std::size_t slash = word.text.find('/');
  const Result<IpAddress> ip = Scalar<IpAddress>::parse({word.text.substr(0, slash)});
  if (!ip.ok()) {
    return ip.error();
  }
  const unsigned bits = ip->is_v4() ? 32 : 128;
  if (slash == std::string_view::npos) {
    return Error{"'" + std::string(word.text) + "' has no prefix length; did you mean " + std::string(word.text) +
                 (bits == 32 ? "/24?" : "/64?")};
  }
  const Result<std::uint64_t> prefix = parse_integer({word.text.substr(slash + 1)});
  if (!prefix.ok() || *prefix == 0 || *prefix > bits) {
    return Error{"'" + std::string(word.text) + "' needs a prefix length from 1 to " + std::to_string(bits)};
  }
  return Subnet{*ip, static_cast<std::uint8_t>(*prefix)};
}
std::string Scalar<Subnet>::format(const Subnet& value) {
  return to_string(value.ip) + "/" + std::to_string(value.prefix);
}

std::string Scalar<PathMtu>::type() { return "256, 512, 1024, 2048, 4096"; }
Json Scalar<PathMtu>::schema(const Limits& /*limits*/) { return {{"enum", {256, 512, 1024, 2048, 4096}}}; }
Result<PathMtu> Scalar<PathMtu>::parse(const Word& word) {
  const Result<std::uint64_t> value = parse_integer(word);
  if (!value.ok()) {
    return value.error();
  }
  if (*value < 256 || *value > 4096 || (*value & (*value - 1)) != 0) {
    return Error{std::string(word.text) + " is none of 256, 512, 1024, 2048 and 4096"};
  }
  return static_cast<PathMtu>(*value);
}
std::string Scalar<PathMtu>::format(const PathMtu& value) { return std::to_string(static_cast<std::uint32_t>(value)); }

std::string Scalar<SnapLength>::type() { return "`full`, or a number from 64"; }
Json Scalar<SnapLength>::schema(const Limits& limits) {
  return {{"anyOf", {{{"const", "full"}}, integer_schema({64, std::min<std::uint64_t>(limits.max, mask32)})}}};
}
Result<SnapLength> Scalar<SnapLength>::parse(const Word& word) {
  if (word.text == "full") {
    return SnapLength{};
  }
  const Result<std::uint64_t> bytes = parse_integer(word);
  if (!bytes.ok() || *bytes < 64 || *bytes > mask32) {
    return Error{"'" + std::string(word.text) +
                 "' is neither full nor a number of bytes from 64, which hold the headers"};
  }
  return SnapLength{static_cast<std::uint32_t>(*bytes)};
}
std::string Scalar<SnapLength>::format(const SnapLength& value) {
  return value.value == 0 ? "full" : std::to_string(value.value);
}

std::string Scalar<FilterText>::type() { return "filter as tcpdump's"; }
Json Scalar<FilterText>::schema(const Limits& /*limits*/) { return {{"type", "string"}}; }
Result<FilterText> Scalar<FilterText>::parse(const Word& word) {
  FilterText filter{std::string(word.text)};
  const auto program = capture::compile_filter(filter.value);
  return program ? Result<FilterText>(std::move(filter)) : Error{"pcap-filter(7): " + program.error().message};
}
std::string Scalar<FilterText>::format(const FilterText& value) { return value.value; }

std::string Scalar<Duration>::type() { return "duration"; }
Json Scalar<Duration>::schema(const Limits& /*limits*/) { return quantity_schema(time_units); }
Result<Duration> Scalar<Duration>::parse(const Word& word) {
  const Result<std::uint64_t> value = parse_quantity(word, duration_quantity);
  return value.ok() ? Result<Duration>(from(*value)) : value.error();
}
std::string Scalar<Duration>::format(const Duration& value) { return format_quantity(magnitude(value), time_units); }
std::uint64_t Scalar<Duration>::magnitude(const Duration& value) { return static_cast<std::uint64_t>(value.count()); }
Duration Scalar<Duration>::from(std::uint64_t value) { return Duration{static_cast<std::int64_t>(value)}; }

std::string Scalar<BitRate>::type() { return "rate"; }
Json Scalar<BitRate>::schema(const Limits& /*limits*/) {
  return {{"anyOf", {string_pattern(pattern(rate_units)), {{"const", "unlimited"}}}}};
}
Result<BitRate> Scalar<BitRate>::parse(const Word& word) {
  if (word.text == "unlimited") {
    return BitRate{};
  }
  const std::optional<Cut> number = cut(word.text);
  if (number && number->unit.ends_with("B/s")) {
    std::string bits(word.text);
    bits[bits.size() - 3] = 'b';
    if (const std::size_t i = bits.find("ib/s"); i != std::string::npos) {
      bits.erase(i, 1);
    }
    return Error{"'" + std::string(word.text) + "' is bytes; did you mean " + bits + "?"};
  }
  const Result<std::uint64_t> value = parse_quantity(word, rate_quantity);
  if (!value.ok()) {
    return value.error();
  }
  if (*value == 0) {
    return Error{"a rate of 0 lets nothing pass; 'unlimited' is no limit"};
  }
  return from(*value);
}
std::string Scalar<BitRate>::format(const BitRate& value) {
  return value.unlimited() ? "unlimited" : format_quantity(value.bits_per_second, rate_units);
}
std::uint64_t Scalar<BitRate>::magnitude(const BitRate& value) { return value.bits_per_second; }
BitRate Scalar<BitRate>::from(std::uint64_t value) { return {value}; }

std::string Scalar<ByteCount>::type() { return "size"; }
Json Scalar<ByteCount>::schema(const Limits& /*limits*/) { return quantity_schema(size_units); }
Result<ByteCount> Scalar<ByteCount>::parse(const Word& word) {
  const std::optional<Cut> number = cut(word.text);
  if (number && number->unit.ends_with("/s")) {
    return Error{"'" + std::string(word.text) + "' is a rate; a size is a number with " + listed(size_units)};
  }
  if (number && !number->unit.empty() && number->unit.ends_with('b')) {
    std::string bytes(word.text);
    bytes.back() = 'B';
    return Error{"'" + std::string(word.text) + "' is bits; did you mean " + bytes + "?"};
  }
  const Result<std::uint64_t> value = parse_quantity(word, size_quantity);
  return value.ok() ? Result<ByteCount>(from(*value)) : value.error();
}
std::string Scalar<ByteCount>::format(const ByteCount& value) { return format_quantity(value.value, size_units); }
std::uint64_t Scalar<ByteCount>::magnitude(const ByteCount& value) { return value.value; }
ByteCount Scalar<ByteCount>::from(std::uint64_t value) { return {value}; }

std::string Scalar<RankRange>::type() { return "rank, or ranks as `8..15` or `8..`"; }
Json Scalar<RankRange>::schema(const Limits& /*limits*/) {
  return {{"type", {"integer", "string"}}, {"pattern", R"(^[0-9]+(\.\.[0-9]*)?$)"}};
}
Result<RankRange> Scalar<RankRange>::parse(const Word& word) {
  const std::size_t dots = word.text.find("..");
  const auto number = [](std::string_view text) { return Scalar<std::uint32_t>::parse({text}); };
  const Result<std::uint32_t> first = number(word.text.substr(0, dots));
  if (!first) {
    return first.error();
  }
  RankRange range{*first, *first};
  if (dots != std::string_view::npos) {
    const std::string_view end = word.text.substr(dots + 2);
    const Result<std::uint32_t> last = end.empty() ? Result(std::numeric_limits<std::uint32_t>::max()) : number(end);
    if (!last) {
      return last.error();
    }
    if (*last < *first) {
      return Error{"'" + std::string(word.text) + "' ends before it begins"};
    }
    range.last = *last;
  }
  return range;
}
std::string Scalar<RankRange>::format(const RankRange& value) {
  const std::string first = std::to_string(value.first);
  if (value.last == std::numeric_limits<std::uint32_t>::max()) {
    return first + "..";
  }
  return value.last == value.first ? first : first + ".." + std::to_string(value.last);
}

std::string Scalar<Qpn>::type() { return "24-bit number"; }
Json Scalar<Qpn>::schema(const Limits& limits) {
  return integer_schema({limits.min, std::min<std::uint64_t>(limits.max, mask24)});
}
Result<Qpn> Scalar<Qpn>::parse(const Word& word) {
  const Result<std::uint64_t> value = parse_24bit(word);
  return value.ok() ? Result<Qpn>(from(*value)) : value.error();
}
std::string Scalar<Qpn>::format(const Qpn& value) { return hex(value.value); }
std::uint64_t Scalar<Qpn>::magnitude(const Qpn& value) { return value.value; }
Qpn Scalar<Qpn>::from(std::uint64_t value) { return {static_cast<std::uint32_t>(value)}; }

std::string Scalar<Psn>::type() { return Scalar<Qpn>::type(); }
Json Scalar<Psn>::schema(const Limits& limits) { return Scalar<Qpn>::schema(limits); }
Result<Psn> Scalar<Psn>::parse(const Word& word) {
  const Result<std::uint64_t> value = parse_24bit(word);
  return value.ok() ? Result<Psn>(from(*value)) : value.error();
}
std::string Scalar<Psn>::format(const Psn& value) { return std::to_string(value.value); }
std::uint64_t Scalar<Psn>::magnitude(const Psn& value) { return value.value; }
Psn Scalar<Psn>::from(std::uint64_t value) { return {static_cast<std::uint32_t>(value)}; }

}  // namespace nbx::config
