// The configuration of the ns-3 model of HPCC (Li et al., SIGCOMM 2019) and of SimAI, which runs it (SimAI.conf): a key
// and its values in a line. Buffers are MiB, thresholds kB, and times microseconds there.
#include <algorithm>
#include <array>
#include <set>

#include "config/cluster_keys.hpp"
#include "import/import.hpp"
#include "import/words.hpp"

namespace nbx::import {
namespace {

using config::Scalar;
using Words = std::vector<Word>;

constexpr std::uint64_t dcqcn_mode = 1;
constexpr std::uint64_t pause_quantum_bits = 512;

/// Keys that say what is written down, and those of other modes than DCQCN.
bool says_nothing(std::string_view key) {
  constexpr auto keys = std::to_array<std::string_view>(
      {"SIMULATOR_STOP_TIME", "ENABLE_TRACE", "TRACE_NODE", "TRACE_FILE", "U_TARGET", "MI_THRESH", "INT_MULTI",
       "MULTI_RATE", "SAMPLE_FEEDBACK", "FAST_REACT", "PINT_LOG_BASE", "PINT_PROB", "DCTCP_RATE_AI", "NVLS_ENABLE"});
  return std::find(keys.begin(), keys.end(), key) != keys.end() || key.ends_with("OUTPUT_FILE") ||
         key.find("_MON_") != std::string_view::npos || key.starts_with("MON_");
}

class Hpcc {
 public:
  Hpcc(BitRate rate, config::Diagnostics& out) : rate_(rate), out_(out) {}

  bool read(Words line) {
    const auto comment = std::find_if(line.begin(), line.end(),
                                      [](const Word& word) { return word.text[0] == '#' || word.text[0] == '{'; });
    line.erase(comment, line.end());
    if (line.empty()) {
      return true;
    }
    const std::string_view key = line[0].text;
    if (line.size() == 1) {
      return error(line[0], quoted(key) + " has no value");
    }
    const Word& value = line[1];
    if (key == "KMIN_MAP" || key == "KMAX_MAP" || key == "PMAX_MAP") {
      return read_map(line, key == "KMIN_MAP" ? kmin_ : key == "KMAX_MAP" ? kmax_ : pmax_);
    }
    if (key == "ENABLE_QCN" || key == "ENABLE_PFC" || key == "CLAMP_TARGET_RATE" ||
        key == "USE_DYNAMIC_PFC_THRESHOLD") {
      return read_switch(key, value);
    }
    if (key == "RATE_AI" || key == "RATE_HAI" || key == "MIN_RATE") {
      return read_rate(key, value);
    }
    if (key == "EWMA_GAIN") {
      return read_gain(value);
    }
    struct Whole {
      const char* key;
      const char* to;
      std::uint64_t min;
      std::uint64_t max;
    };
    constexpr Whole wholes[] = {{"ALPHA_RESUME_INTERVAL", "rp_dce_tcp_rtt", 1, 1'000'000},
                                {"RATE_DECREASE_INTERVAL", "rp_rate_reduce_monitor_period", 0, 1'000'000},
                                {"RP_TIMER", "rp_time_reset", 1, 1'000'000},
                                {"FAST_RECOVERY_TIMES", "rp_threshold", 1, 1'000},
                                {"BUFFER_SIZE", "buffer", 1, 4096},
                                {"PAUSE_TIME", "pfc_quanta", 1, 1'000'000},
                                {"CC_MODE", "", 0, 1'000}};
    for (const Whole& each : wholes) {
      if (key == each.key) {
        const auto number = whole(value.text);
        if (!number || *number < each.min || *number > each.max) {
          return error(value, "a number from " + std::to_string(each.min) + " to " + std::to_string(each.max) +
                                  " is wanted, not " + quoted(value.text));
        }
        return set(each.to, *number, value);
      }
    }
    leave_out(line);
    return true;
  }

  /// False: something that it cannot do without is missing.
  bool complete(const config::SourcePos& pos) {
    const bool any = !kmin_.empty() || !kmax_.empty() || !pmax_.empty();
    if (any && (kmin_.empty() || kmax_.empty() || pmax_.empty())) {
      out_.push_back({pos, "KMIN_MAP, KMAX_MAP and PMAX_MAP are wanted, or none of them"});
    } else if (any && kmin_at_ > kmax_at_) {
      out_.push_back({pos, "kmin is larger than kmax"});
    } else {
      return true;
    }
    return false;
  }

  [[nodiscard]] std::string yaml() const {
    const std::string rate = Scalar<BitRate>::format(rate_);
    std::string text = "# Keys for a cluster file.\nnetwork:\n  topology: rack\n  host_rate: " + rate +
                       "\n  fabric_rate: " + rate + "\n" + network_ +
                       "  priorities:\n    - {priority: 3, lossless: " + (pfc_ ? "true" : "false");
    if (marks_ && !kmin_.empty()) {
      text += ", ecn: {kmin: " + kmin_ + ", kmax: " + kmax_ + ", pmax: " + pmax_ + "}";
    }
    text += "}\ntransport:\n  line_rate: " + rate + "\n";
    return text + (marks_ && dcqcn_ ? "  dcqcn: {preset: hpcc-production" + knobs_ + "}\n" : "");
  }

 private:
  bool error(const Word& word, std::string message) {
    out_.push_back({word.pos, std::move(message)});
    return false;
  }
  void knob(const std::string& name, const std::string& value) { knobs_ += ", " + name + ": " + value; }

  bool set(const std::string& to, std::uint64_t number, const Word& value) {
    if (to == "buffer") {
      network_ += "  buffer: " + std::to_string(number) + "MiB\n";
    } else if (to == "pfc_quanta") {
      const std::uint64_t quanta = number * (rate_.bits_per_second / 1'000'000) / pause_quantum_bits;
      if (quanta < 2 || quanta > 0xffff) {
        return error(value, std::to_string(number) + " us are " + std::to_string(quanta) +
                                " quanta of 512 bit times at this rate; a pause has 2 to 65535");
      }
      network_ += "  pfc_quanta: " + std::to_string(quanta) + "\n";
    } else if (to.empty()) {
      dcqcn_ = number == dcqcn_mode;
      if (!dcqcn_) {
        warn(out_, value.pos, "only DCQCN (1) is known here; without congestion control");
      }
    } else {
      knob(to, std::to_string(number));
    }
    return true;
  }

  bool read_switch(std::string_view key, const Word& value) {
    const bool on = value.text == "1" || value.text == "Yes";
    if (!on && value.text != "0" && value.text != "No") {
      return error(value, "0 or 1 is wanted, not " + quoted(value.text));
    }
    if (key == "ENABLE_QCN") {
      marks_ = on;
    } else if (key == "ENABLE_PFC") {
      pfc_ = on;
    } else if (key == "CLAMP_TARGET_RATE") {
      knob("rp_clamp_tgt_rate", on ? "true" : "false");
    } else if (!on) {
      warn(out_, value.pos, "the static threshold of that model is not known here; with the dynamic one");
    }
    return true;
  }

  bool read_rate(std::string_view key, const Word& value) {
    const auto rate = Scalar<BitRate>::parse({value.text, false});
    constexpr std::uint64_t mega = 1'000'000;
    if (!rate.ok() || rate->bits_per_second % mega != 0 || rate->bits_per_second == 0 ||
        rate->bits_per_second / mega > mega) {
      return error(value, quoted(value.text) + " is no rate in whole Mb/s, such as 50Mb/s");
    }
    knob(key == "RATE_AI"    ? "rp_ai_rate"
         : key == "RATE_HAI" ? "rp_hai_rate"
                             : "rp_min_rate",
         std::to_string(rate->bits_per_second / mega));
    return true;
  }

  /// alpha = (1 - g) alpha + g; mlx5 has what alpha keeps, of 1024.
  bool read_gain(const Word& value) {
    const auto gain = quantity(value.text);
    if (!gain || !gain->unit.empty() || gain->value > 1) {
      return error(value, quoted(value.text) + " is no gain from 0 to 1");
    }
    knob("rp_dce_tcp_g", std::to_string(static_cast<unsigned>((1 - gain->value) * 1024 + 0.5)));
    return true;
  }

  /// Pairs of a link's rate and its value; that of the hosts' rate is taken.
  bool read_map(const Words& line, std::string& to) {
    const auto pairs = whole(line[1].text);
    if (!pairs || line.size() != 2 + 2 * *pairs) {
      return error(line[1], "a number of pairs is wanted, and as many rates with their values");
    }
    std::string rates;
    for (std::size_t i = 2; i < line.size(); i += 2) {
      const auto rate = whole(line[i].text);
      const auto value = quantity(line[i + 1].text);
      const bool share = &to == &pmax_;
      if (!rate || *rate == 0) {
        return error(line[i], quoted(line[i].text) + " is no rate in bits per second");
      }
      if (!value || !value->unit.empty() || value->value > (share ? 1 : 1e6)) {
        return error(line[i + 1],
                     quoted(line[i + 1].text) + (share ? " is no share" : " is no threshold in kB to 1e6"));
      }
      rates += (rates.empty() ? "" : ", ") + Scalar<BitRate>::format(BitRate{*rate});
      if (*rate == rate_.bits_per_second) {
        to = share ? std::string(line[i + 1].text)
                   : std::to_string(static_cast<std::uint64_t>(value->value * 1000)) + "B";
        if (!share) {
          (&to == &kmin_ ? kmin_at_ : kmax_at_) = value->value;
        }
      }
    }
    if (to.empty()) {
      return error(line[0], "nothing for links of " + Scalar<BitRate>::format(rate_) + "; it has " + rates);
    }
    return true;
  }

  void leave_out(const Words& line) {
    const std::string_view key = line[0].text;
    const bool nothing = std::all_of(line.begin() + 1, line.end(), [](const Word& word) {
      const auto value = quantity(word.text);
      return value && value->value == 0 && value->unit.empty();
    });
    if (key == "PACKET_PAYLOAD_SIZE") {
      warn(out_, line[1].pos, "packets are as long as the 'path_mtu' of the ghosts, a power of two to 4096");
    } else if (!nothing && !says_nothing(key)) {
      warn(out_, line[0].pos, quoted(key) + " has no counterpart here; without it");
    }
  }

  BitRate rate_;
  config::Diagnostics& out_;
  bool marks_ = true;
  bool pfc_ = true;
  bool dcqcn_ = true;
  std::string network_;
  std::string knobs_;
  std::string kmin_;
  std::string kmax_;
  std::string pmax_;
  double kmin_at_ = 0;
  double kmax_at_ = 0;
};

}  // namespace

Imported from_hpcc(const std::string& name, std::string_view text, BitRate rate) {
  Imported out;
  const auto lines = words_of(name, text);
  if (lines.empty()) {
    out.diagnostics.push_back({start_of(name), "a configuration without a key"});
    return out;
  }
  Hpcc config(rate, out.diagnostics);
  std::set<std::string_view> seen;
  for (const Words& line : lines) {
    if (!seen.insert(line[0].text).second && line[0].text[0] != '#') {
      out.diagnostics.push_back({line[0].pos, quoted(line[0].text) + " is there twice"});
      return out;
    }
    if (!config.read(line)) {
      return out;
    }
  }
  if (config.complete(lines[0][0].pos)) {
    out.yaml = config.yaml();
  }
  return out;
}

}  // namespace nbx::import
