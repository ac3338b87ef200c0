#include "calibrate/compare.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <ostream>
#include <set>

namespace nbx::calibrate {
namespace {

using Json = nlohmann::json;

constexpr double mib = 1 << 20;

std::string name_of(const Json& result, const char* place) {
  std::string name = result.at("collective").get<std::string>() + ' ' + result.at("type").get<std::string>();
  if (const std::string op = result.at("redop").get<std::string>(); op != "none") {
    name += ' ' + op;
  }
  return std::string(place) == "in_place" ? name + " in place" : name;
}

void read_probe(const Json& document, Times& times) {
  for (const Json& result : document.at("results")) {
    for (const char* place : {"out_of_place", "in_place"}) {
      const auto measured = result.find(place);
      if (measured != result.end() && measured->contains("times")) {
        auto& all = times[{name_of(result, place), result.at("size").get<std::uint64_t>()}];
        const auto more = measured->at("times").get<std::vector<double>>();
        all.insert(all.end(), more.begin(), more.end());
      }
    }
  }
}

double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 4> units{"", " KiB", " MiB", " GiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return bytes == 0 ? "" : std::to_string(bytes) + units[unit];
}

void print_gap(const std::string& name, const Gap& gap, std::ostream& out) {
  out << name << ": ghosts are " << std::setprecision(1) << std::abs(gap.per_call) << " us per call too "
      << (gap.per_call < 0 ? "late" : "early") << " and " << std::abs(gap.per_mib) << " us per MiB too "
      << (gap.per_mib < 0 ? "late" : "early") << '\n';
}

}  // namespace

Result<Times> read_times(const std::string& text) {
  Times times;
  try {
    const Json document = Json::parse(text);
    if (document.contains("results")) {
      read_probe(document, times);
    } else {
      for (const auto& [name, values] : document.at("times").items()) {
        times[{name, 0}] = values.get<std::vector<double>>();
      }
    }
  } catch (const Json::exception& e) {
    return Error{std::string("neither a result of nbx-probe nor {\"times\": {\"NAME\": [MICROSECONDS, ...]}}: ") +
                 e.what()};
  }
  std::erase_if(times, [](const auto& entry) { return entry.second.empty(); });
  if (times.empty()) {
    return Error{"no times of single calls: run nbx-probe with --each --json"};
  }
  return times;
}

Sample summary(std::vector<double> times) {
  if (times.empty()) {
    return {};
  }
  std::ranges::sort(times);
  const double median = quantile(times, 0.5);
  return {.median = median,
          .spread = (quantile(times, 0.75) - quantile(times, 0.25)) / median * 100,
          .repeats = times.size()};
}

double Comparison::worst_error() const {
  double worst = 0;
  for (const Row& row : rows) {
    worst = std::max(worst, std::abs(row.error()));
  }
  return worst;
}

std::optional<Gap> Comparison::gap(const std::string& name) const {
  double n = 0;
  double x = 0;
  double y = 0;
  double xx = 0;
  double xy = 0;
  for (const Row& row : rows) {
    if (row.subject.name == name && row.subject.bytes != 0) {
      const double size = static_cast<double>(row.subject.bytes) / mib;
      const double early = row.real.median - row.ghosts.median;
      n += 1;
      x += size;
      y += early;
      xx += size * size;
      xy += size * early;
    }
  }
  if (n < 2) {
    return std::nullopt;
  }
  const double slope = (n * xy - x * y) / (n * xx - x * x);
  return Gap{.per_call = (y - slope * x) / n, .per_mib = slope};
}

Comparison compare(const Times& real, const Times& ghosts) {
  Comparison comparison;
  for (const auto& [subject, times] : real) {
    const auto other = ghosts.find(subject);
    if (other == ghosts.end()) {
      comparison.only_one.push_back(subject);
    } else {
      comparison.rows.push_back({subject, summary(times), summary(other->second)});
    }
  }
  for (const auto& [subject, times] : ghosts) {
    if (!real.contains(subject)) {
      comparison.only_one.push_back(subject);
    }
  }
  return comparison;
}

void print(const Comparison& comparison, double tolerance, std::ostream& out) {
  out << std::left << std::setw(34) << "" << std::right << std::setw(12) << "real us" << std::setw(9) << "spread"
      << std::setw(8) << "repeats" << std::setw(12) << "ghosts us" << std::setw(9) << "spread" << std::setw(8)
      << "repeats" << std::setw(10) << "error\n"
      << std::fixed;
  const auto sample = [&out](const Sample& s) {
    out << std::setprecision(1) << std::setw(12) << s.median << std::setw(7) << s.spread << " %" << std::setw(8)
        << s.repeats;
  };
  std::set<std::string> names;
  for (const Row& row : comparison.rows) {
    const std::string size = size_text(row.subject.bytes);
    out << std::left << std::setw(34) << row.subject.name + (size.empty() ? "" : ", " + size) << std::right;
    sample(row.real);
    sample(row.ghosts);
    out << std::setprecision(2) << std::showpos << std::setw(7) << row.error() << std::noshowpos << " %"
        << (std::abs(row.error()) > tolerance ? "  beyond\n" : "\n");
    names.insert(row.subject.name);
  }
  for (const Subject& subject : comparison.only_one) {
    const std::string size = size_text(subject.bytes);
    out << subject.name << (size.empty() ? "" : ", " + size) << ": measured in one of the runs only\n";
  }
  const double worst = comparison.worst_error();
  out << "worst error " << worst << " %, tolerance " << tolerance << " %\n";
  for (const std::string& name : names) {
    if (const auto gap = comparison.gap(name); gap && worst > tolerance) {
      print_gap(name, *gap, out);
    }
  }
  if (worst > tolerance) {
    out << "'nccl: hop: per_message' and 'skew' of the cluster file move the time per call, 'hop: reduce_rate' the "
           "time per byte\n";
  }
}

nlohmann::ordered_json to_json(const Comparison& comparison, double tolerance) {
  nlohmann::ordered_json document{{"tolerance_percent", tolerance},
                                  {"worst_error_percent", comparison.worst_error()},
                                  {"within", comparison.worst_error() <= tolerance && !comparison.rows.empty()},
                                  {"rows", nlohmann::ordered_json::array()},
                                  {"gaps", nlohmann::ordered_json::object()},
                                  {"only_one", nlohmann::ordered_json::array()}};
  const auto sample = [](const Sample& s) {
    return nlohmann::ordered_json{{"median_us", s.median}, {"spread_percent", s.spread}, {"repeats", s.repeats}};
  };
  for (const Row& row : comparison.rows) {
    document["rows"].push_back({{"name", row.subject.name},
                                {"size", row.subject.bytes},
                                {"real", sample(row.real)},
                                {"ghosts", sample(row.ghosts)},
                                {"error_percent", row.error()}});
    if (const auto gap = comparison.gap(row.subject.name)) {
      document["gaps"][row.subject.name] = {{"early_us_per_call", gap->per_call}, {"early_us_per_mib", gap->per_mib}};
    }
  }
  for (const Subject& subject : comparison.only_one) {
    document["only_one"].push_back({{"name", subject.name}, {"size", subject.bytes}});
  }
  return document;
}

}  // namespace nbx::calibrate
