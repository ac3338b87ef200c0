#include "scenario/search.hpp"

#include <array>
#include <charconv>
#include <cstdlib>

namespace nbx::scenario {
namespace {

struct Number {
  std::string digits;  // without the point
  unsigned decimals = 0;
  std::string unit;
};

std::optional<Number> parse_number(const std::string& text) {
  Number number;
  std::size_t i = 0;
  bool fraction = false;
  for (; i < text.size() && ((text[i] >= '0' && text[i] <= '9') || (text[i] == '.' && !fraction)); ++i) {
    if (text[i] == '.') {
      fraction = true;
    } else {
      number.digits += text[i];
      number.decimals += fraction ? 1 : 0;
    }
  }
  number.unit = text.substr(i);
  return number.digits.empty() || number.digits.size() > 15 ? std::nullopt : std::optional(number);
}

std::int64_t value_of(const Number& number, unsigned decimals) {
  const std::string digits = number.digits + std::string(decimals - number.decimals, '0');
  std::int64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

}  // namespace

std::string Range::text(std::int64_t value) const {
  std::string digits = std::to_string(value);
  if (decimals != 0) {
    digits.insert(0, digits.size() <= decimals ? decimals + 1 - digits.size() : 0, '0');
    digits.insert(digits.size() - decimals, ".");
  }
  return digits + unit;
}

Result<Range> parse_range(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::size_t dots = text.find("..", equals == std::string::npos ? 0 : equals);
  if (equals == std::string::npos || dots == std::string::npos) {
    return Error{"'" + text + "' is not PATH=GOOD..BAD"};
  }
  const auto good = parse_number(text.substr(equals + 1, dots - equals - 1));
  const auto bad = parse_number(text.substr(dots + 2));
  constexpr unsigned decimals_max = 6;
  if (!good || !bad || good->decimals > decimals_max || bad->decimals > decimals_max) {
    return Error{"'" + text.substr(equals + 1) + "' is not two numbers with a unit"};
  }
  if (good->unit != bad->unit) {
    return Error{"the ends have different units: '" + good->unit + "' and '" + bad->unit + "'"};
  }
  Range range{.path = text.substr(0, equals), .unit = good->unit};
  range.decimals = std::max(good->decimals, bad->decimals);
  range.good = value_of(*good, range.decimals);
  range.bad = value_of(*bad, range.decimals);
  return range;
}

Result<Found> smallest_that_raises(const Range& range, double raise, const StepTime& step_time) {
  Found found;
  double limit = 0;
  const auto raised = [&](std::int64_t value) -> Result<bool> {
    const std::string text = range.text(value);
    const auto time = step_time(text);
    if (!time) {
      return time.error();
    }
    found.tried.push_back({text, *time, !*time || (limit != 0 && **time >= limit)});
    return bool{found.tried.back().raised};
  };
  const Result<bool> at_good = raised(range.good);
  if (!at_good) {
    return at_good.error();
  }
  if (!found.tried.front().step_time) {
    return Error{"with " + range.text(range.good) + ", the good end, the job comes to no end"};
  }
  limit = *found.tried.front().step_time * (1 + raise);
  std::int64_t good = range.good;
  std::int64_t bad = range.bad;
  const Result<bool> at_bad = raised(bad);
  if (!at_bad) {
    return at_bad.error();
  }
  if (!*at_bad) {
    return found;
  }
  while (std::abs(bad - good) > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    const Result<bool> at_middle = raised(middle);
    if (!at_middle) {
      return at_middle.error();
    }
    (*at_middle ? bad : good) = middle;
  }
  found.value = range.text(bad);
  return found;
}

}  // namespace nbx::scenario
