// tc-netem(8): the line's own words and units.
#include <cmath>
#include <map>

#include "config/profile_keys.hpp"
#include "import/import.hpp"
#include "import/words.hpp"

namespace nbx::import {
namespace {

using config::Scalar;

constexpr double hour_ps = 3.6e15;

class Netem {
 public:
  Netem(std::vector<Word> words, config::Diagnostics& out) : words_(std::move(words)), out_(out) {}

  void read() {
    while (at_ != words_.size()) {
      const Word word = words_[at_++];
      if (word.text == "delay" || word.text == "latency") {
        read_delay(word);
      } else if (word.text == "loss" || word.text == "drop") {
        read_loss(word);
      } else if (word.text == "duplicate" || word.text == "corrupt") {
        read_chance(word);
      } else if (word.text == "rate") {
        read_rate(word);
      } else if (word.text == "limit") {
        read_limit(word);
      } else if (word.text == "ecn") {
        ecn_ = true;
        warn(out_, word.pos, "packets that are not ECN-capable are not lost in place of being marked");
      } else if (word.text == "reorder" || word.text == "gap" || word.text == "slot" || word.text == "seed" ||
                 word.text == "distribution") {
        warn(out_, word.pos, quoted(word.text) + " has no counterpart here; without it");
        skip_values();
      } else {
        out_.push_back({word.pos, quoted(word.text) + " is no word of netem"});
      }
    }
  }

  [[nodiscard]] std::string yaml(const std::string& way) const {
    std::string direction = delay_ + (loss_.empty() ? "" : (ecn_ ? "  ecn: " : "  loss: ") + loss_ + "\n");
    for (const auto& [key, value] : rest_) {
      direction += "  " + key + ": " + value + "\n";
    }
    return "name: imported-netem\n" + way + ":" + (direction.empty() ? " {}\n" : "\n" + direction);
  }

 private:
  [[nodiscard]] bool more() const { return at_ != words_.size(); }
  /// A number comes next.
  [[nodiscard]] bool value_next() const { return more() && quantity(words_[at_].text).has_value(); }
  void skip_values() {
    while (value_next()) {
      ++at_;
    }
  }

  std::optional<Quantity> next(const Word& of, const char* what) {
    if (!value_next()) {
      out_.push_back({more() ? words_[at_].pos : of.pos, quoted(of.text) + " needs " + what});
      return std::nullopt;
    }
    return quantity(words_[at_++].text);
  }

  /// Without a unit in microseconds, as tc has it.
  std::optional<Duration> time(const Word& of) {
    const auto given = next(of, "a time");
    if (!given) {
      return std::nullopt;
    }
    const std::string_view unit = given->unit;
    const double ps = given->value * (unit.empty() || unit == "us" || unit == "usec" || unit == "usecs" ? 1e6
                                      : unit == "ms" || unit == "msec" || unit == "msecs"               ? 1e9
                                      : unit == "s" || unit == "sec" || unit == "secs"                  ? 1e12
                                      : unit == "ns" || unit == "nsec" || unit == "nsecs"               ? 1e3
                                                                                                        : -1);
    if (!(ps >= 0 && ps <= hour_ps)) {
      out_.push_back({words_[at_ - 1].pos, quoted(words_[at_ - 1].text) + " is no time up to an hour"});
      return std::nullopt;
    }
    return Duration{std::llround(ps)};
  }

  std::optional<double> percent(const Word& of) {
    const auto given = next(of, "a percentage");
    if (!given) {
      return std::nullopt;
    }
    if ((!given->unit.empty() && given->unit != "%") || given->value > 100) {
      out_.push_back({words_[at_ - 1].pos, quoted(words_[at_ - 1].text) + " is no percentage"});
      return std::nullopt;
    }
    return given->value / 100;
  }
  static std::string text(double share) { return Scalar<config::Probability>::format({share}); }

  void no_correlation() {
    if (value_next()) {
      warn(out_, words_[at_].pos, "packets are chosen independently of each other here; without the correlation");
      skip_values();
    }
  }

  void read_delay(const Word& word) {
    const auto constant = time(word);
    if (!constant) {
      return;
    }
    delay_ = "  delay: {constant: " + Scalar<Duration>::format(*constant);
    if (value_next()) {
      const auto jitter = time(word);
      if (!jitter) {
        return;
      }
      no_correlation();
      const bool normal = more() && words_[at_].text == "distribution" && read_distribution();
      delay_ += (normal ? ", normal: " : ", uniform: ") + Scalar<Duration>::format(*jitter) + ", may_reorder: true";
    }
    delay_ += "}\n";
  }
  /// Whether it is the normal one.
  bool read_distribution() {
    ++at_;
    if (!more()) {
      out_.push_back({words_.back().pos, "'distribution' needs a name"});
      return false;
    }
    const Word& name = words_[at_++];
    if (name.text != "normal" && name.text != "uniform") {
      warn(out_, name.pos, "the table " + quoted(name.text) + " of netem is not known here; uniform in its place");
    }
    return name.text == "normal";
  }

  void read_loss(const Word& word) {
    if (more() && words_[at_].text == "gemodel") {
      ++at_;
      read_gilbert_elliott(word);
      return;
    }
    if (more() && words_[at_].text == "state") {
      warn(out_, words_[at_].pos, "the four-state model has no counterpart here; without loss");
      ++at_;
      skip_values();
      return;
    }
    if (more() && words_[at_].text == "random") {
      ++at_;
    }
    if (const auto share = percent(word)) {
      loss_ = text(*share);
      no_correlation();
    }
  }
  /// p [r [1-h [1-k]]], with 1-p, 100 % and 0 % for those that are missing.
  void read_gilbert_elliott(const Word& word) {
    const auto p = percent(word);
    if (!p) {
      return;
    }
    double others[] = {1 - *p, 1, 0};
    for (double& other : others) {
      if (value_next()) {
        const auto given = percent(word);
        if (!given) {
          return;
        }
        other = *given;
      }
    }
    loss_ = "{gilbert_elliott: {p: " + text(*p) + ", r: " + text(others[0]) + ", in_bad: " + text(others[1]) +
            ", in_good: " + text(others[2]) + "}}";
  }

  void read_chance(const Word& word) {
    if (const auto share = percent(word)) {
      rest_[std::string(word.text)] = text(*share);
      no_correlation();
    }
  }

  /// Bits per second, or with `bps` bytes; k, m, g, t are powers of 1000 and with an i of 1024.
  void read_rate(const Word& word) {
    const auto given = next(word, "a rate");
    if (!given) {
      return;
    }
    std::string_view unit = given->unit;
    double bits = given->value;
    const std::size_t power =
        unit.empty() ? std::string_view::npos : std::string_view("kmgt").find(unit.front() | 0x20);
    if (power != std::string_view::npos) {
      unit.remove_prefix(1);
      const bool binary = unit.starts_with('i');
      unit.remove_prefix(binary ? 1 : 0);
      bits *= std::pow(binary ? 1024 : 1000, static_cast<double>(power + 1));
    }
    if (unit == "bps") {
      bits *= 8;
    }
    if ((unit != "bit" && unit != "bps" && !given->unit.empty()) || !(bits >= 1 && bits <= 1e13)) {
      out_.push_back({words_[at_ - 1].pos, quoted(words_[at_ - 1].text) + " is no rate from 1 b/s to 10 Tb/s"});
      return;
    }
    rest_["rate"] =
        "{limit: " + Scalar<BitRate>::format({static_cast<std::uint64_t>(bits)}) + ", count_overhead: false}";
    if (value_next()) {
      warn(out_, words_[at_].pos, "overheads of packets and cells have no counterpart here; without them");
      skip_values();
    }
  }

  void read_limit(const Word& word) {
    const auto given = next(word, "a number of packets");
    if (!given) {
      return;
    }
    constexpr double frames_max = 1U << 24U;
    if (!given->unit.empty() || !(given->value >= 1 && given->value <= frames_max) ||
        given->value != std::floor(given->value)) {
      out_.push_back({words_[at_ - 1].pos, quoted(words_[at_ - 1].text) + " is no number from 1 to 16777216"});
      return;
    }
    rest_["delay_line_frames"] = std::to_string(static_cast<std::uint64_t>(given->value));
  }

  std::vector<Word> words_;
  config::Diagnostics& out_;
  std::size_t at_ = 0;
  std::string delay_;
  std::string loss_;
  std::map<std::string, std::string> rest_;  // by key; what is said twice counts as said last, as in tc
  bool ecn_ = false;
};

/// What `tc qdisc show` has between `netem` and its parameters: the handle and the place.
void skip_place(std::vector<Word>& words) {
  std::size_t skipped = 0;
  while (skipped != words.size()) {
    const std::string_view word = words[skipped].text;
    const bool pair = word == "dev" || word == "parent" || word == "refcnt";
    if (!pair && word != "root" && !word.ends_with(':')) {
      break;
    }
    skipped = std::min(words.size(), skipped + (pair ? 2 : 1));
  }
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(skipped));
}

}  // namespace

Imported from_netem(const std::string& name, std::string_view text, config::Way way) {
  Imported out;
  std::vector<std::vector<Word>> lines = words_of(name, text);
  if (lines.size() != 1) {
    const config::SourcePos pos = lines.size() > 1 ? lines[1].front().pos : start_of(name);
    out.diagnostics.push_back({pos, "one line of tc is wanted"});
    return out;
  }
  std::vector<Word>& words = lines.front();
  const auto start = std::find_if(words.begin(), words.end(), [](const Word& word) { return word.text == "netem"; });
  if (start != words.end()) {
    words.erase(words.begin(), start + 1);
  }
  skip_place(words);
  Netem netem(words, out.diagnostics);
  netem.read();
  if (out.ok()) {
    out.yaml = netem.yaml(Scalar<config::Way>::format(way));
  }
  return out;
}

}  // namespace nbx::import
