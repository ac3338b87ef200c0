#include "config/assertion.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <vector>

#include "config/scalar.hpp"
#include "stats/counters.hpp"

namespace nbx::config {
namespace {

constexpr std::string_view counter_prefix = "counter.";

struct Comparator {
  std::string_view sign;
  Comparison comparison;
};
constexpr Comparator comparators[] = {{"<=", Comparison::at_most},
                                      {">=", Comparison::at_least},
                                      {"==", Comparison::equal},
                                      {"<", Comparison::less},
                                      {">", Comparison::more}};

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const MetricInfo& metric : metric_info) {
    names.emplace_back(metric.name);
  }
  return names;
}

std::vector<std::string> counter_names() {
  std::vector<std::string> names;
  for (const auto& counter : counter_info) {
    names.emplace_back(counter.name);
  }
  for (std::size_t i = 1; i < drop_info.size(); ++i) {
    names.emplace_back(drop_info[i].name);
  }
  return names;
}

std::optional<Metric> metric_named(std::string_view name) {
  for (std::size_t i = 0; i < metric_info.size(); ++i) {
    if (metric_info[i].name == name) {
      return static_cast<Metric>(i);
    }
  }
  return std::nullopt;
}

template <class T>
Result<double> quantity(const std::string& text) {
  const Result<T> parsed = Scalar<T>::parse({text});
  return parsed.ok() ? Result<double>(static_cast<double>(Scalar<T>::magnitude(*parsed))) : parsed.error();
}

Result<double> plain_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0) || std::isinf(value)) {
    return Error{"'" + text + "' is not a number from 0"};
  }
  return value;
}

Result<double> limit_of(const std::string& text, Unit unit) {
  switch (unit) {
    case Unit::count:
    case Unit::per_second:
    case Unit::ratio:
      return plain_number(text);
    case Unit::rate:
      return quantity<BitRate>(text);
    case Unit::size:
      return quantity<ByteCount>(text);
    case Unit::time: {
      const Result<double> ps = quantity<Duration>(text);
      return ps.ok() ? Result<double>(*ps * 1e-12) : ps.error();
    }
    case Unit::share: {
      const Result<Probability> share = Scalar<Probability>::parse({text});
      return share.ok() ? Result<double>(share->value) : share.error();
    }
  }
  return Error{};
}

/// Reads words and signs off a text, and knows where it is.
class Reader {
 public:
  explicit Reader(const Located<std::string>& text) : text_(text) {}

  std::string_view rest() {
    skip_blanks();
    return std::string_view(*text_).substr(at_);
  }
  std::string word() {
    const std::string_view all = rest();
    const auto end = std::find_if_not(all.begin(), all.end(),
                                      [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
    last_ = at_;
    at_ += static_cast<std::size_t>(end - all.begin());
    return {all.begin(), end};
  }
  std::optional<Comparison> comparison() {
    last_ = text_->size() - rest().size();
    for (const Comparator& each : comparators) {
      if (rest().starts_with(each.sign)) {
        at_ += each.sign.size();
        return each.comparison;
      }
    }
    return std::nullopt;
  }
  /// Where the next word stands, or the one that was read last.
  [[nodiscard]] SourcePos here() { return pos_at(text_->size() - rest().size()); }
  [[nodiscard]] SourcePos last() const { return pos_at(last_); }

 private:
  void skip_blanks() {
    while (at_ != text_->size() && std::isspace(static_cast<unsigned char>((*text_)[at_])) != 0) {
      ++at_;
    }
  }
  [[nodiscard]] SourcePos pos_at(std::size_t offset) const {
    SourcePos pos = text_.pos;
    pos.column += static_cast<std::uint32_t>(offset);
    return pos;
  }

  const Located<std::string>& text_;
  std::size_t at_ = 0;
  std::size_t last_ = 0;
};

/// The metric, or counter, that `name` is; its name is asked for in the plural or the singular.
bool find_metric(const std::string& name, Assertion& into) {
  if (name.starts_with(counter_prefix)) {
    into.counter = name.substr(counter_prefix.size());
    into.metric = Metric::counter;
    const std::vector<std::string> known = counter_names();
    return std::find(known.begin(), known.end(), into.counter) != known.end();
  }
  const std::optional<Metric> metric = metric_named(name);
  into.metric = metric.value_or(Metric::counter);
  return metric.has_value();
}

Diagnostic unknown(const SourcePos& pos, const std::string& name) {
  if (name.starts_with(counter_prefix)) {
    const std::string counter = name.substr(counter_prefix.size());
    return {pos, "there is no counter '" + counter + "'" + did_you_mean(counter, counter_names())};
  }
  return {pos, "there is no metric '" + name + "'" + did_you_mean(name, metric_names())};
}

std::optional<Assertion> parse_none(Reader& reader, Assertion assertion, Diagnostics& out) {
  const SourcePos pos = reader.here();
  std::string name;
  while (!reader.rest().empty()) {
    const std::string word = reader.word();
    if (word.empty()) {
      out.push_back({reader.here(), "'no' is followed by the name of something counted, and nothing else"});
      return std::nullopt;
    }
    name += (name.empty() ? "" : "_") + word;
  }
  if (!find_metric(name, assertion) && !find_metric(name + "s", assertion)) {
    out.push_back(unknown(pos, name));
    return std::nullopt;
  }
  if (assertion.unit() != Unit::count) {
    out.push_back({pos, "'" + name + "' is not a count: compare it with a limit"});
    return std::nullopt;
  }
  assertion.comparison = Comparison::equal;
  return assertion;
}

std::string pretty(double value, const char* unit) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.6g%s%s", value, *unit == '\0' || *unit == '%' ? "" : " ", unit);
  return text.data();
}

}  // namespace

bool needs_baseline(Metric metric) noexcept {
  return metric != Metric::counter && metric_info[static_cast<std::size_t>(metric)].text.ends_with("baseline");
}

bool Assertion::holds(double measured) const noexcept {
  switch (comparison) {
    case Comparison::less:
      return measured < limit;
    case Comparison::at_most:
      return measured <= limit;
    case Comparison::equal:
      return measured == limit;
    case Comparison::at_least:
      return measured >= limit;
    case Comparison::more:
      return measured > limit;
  }
  return false;
}

std::optional<Assertion> parse_assertion(const Located<std::string>& text, Diagnostics& out) {
  Reader reader(text);
  Assertion assertion{.text = *text, .pos = text.pos};
  const std::string name = reader.word();
  const SourcePos name_pos = reader.last();
  if (name == "no") {
    return parse_none(reader, std::move(assertion), out);
  }
  if (name.empty()) {
    out.push_back({reader.here(), "an assertion begins with a metric, or with 'no': 'jct_ratio <= 1.05'"});
    return std::nullopt;
  }
  if (!find_metric(name, assertion)) {
    out.push_back(unknown(name_pos, name));
    return std::nullopt;
  }
  const std::optional<Comparison> comparison = reader.comparison();
  if (!comparison) {
    out.push_back({reader.here(), "one of '<', '<=', '==', '>=', '>' and a limit follow a metric"});
    return std::nullopt;
  }
  assertion.comparison = *comparison;
  std::string limit(reader.rest());
  const SourcePos limit_pos = reader.here();
  limit.erase(
      std::find_if_not(limit.rbegin(), limit.rend(), [](unsigned char c) { return std::isspace(c) != 0; }).base(),
      limit.end());
  if (limit.empty()) {
    out.push_back({limit_pos, "a limit is missing"});
    return std::nullopt;
  }
  const Result<double> value = limit_of(limit, assertion.unit());
  if (!value.ok()) {
    out.push_back({limit_pos, value.error().message});
    return std::nullopt;
  }
  assertion.limit = *value;
  return assertion;
}

std::string format(double value, Unit unit) {
  struct Step {
    double size;
    const char* name;
  };
  const auto scaled = [value](std::initializer_list<Step> steps) {
    for (const Step& step : steps) {
      if (std::abs(value) >= step.size) {
        return pretty(value / step.size, step.name);
      }
    }
    return pretty(value / (steps.end() - 1)->size, (steps.end() - 1)->name);
  };
  switch (unit) {
    case Unit::count:
    case Unit::ratio:
      return pretty(value, "");
    case Unit::per_second:
      return pretty(value, "a second");
    case Unit::rate:
      return scaled({{1e9, "Gb/s"}, {1e6, "Mb/s"}, {1e3, "kb/s"}, {1, "b/s"}});
    case Unit::share:
      return pretty(value * 100, "%");
    case Unit::size:
      return scaled({{1 << 30U, "GiB"}, {1 << 20U, "MiB"}, {1 << 10U, "KiB"}, {1, "B"}});
    case Unit::time:
      return scaled({{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}});
  }
  return {};
}

}  // namespace nbx::config
