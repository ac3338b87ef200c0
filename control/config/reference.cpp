// The references in Markdown: of the keys from the model, of the counters from their table.
#include <algorithm>

#include "config/assertion.hpp"
#include "config/generate.hpp"
#include "config/model.hpp"
#include "stats/counters.hpp"

namespace nbx::config {
namespace {

std::string anchor(const std::string& title) {
  std::string out = title;
  std::replace(out.begin(), out.end(), ' ', '-');
  return out;
}

std::string word_of(const Type& type) {
  switch (type.kind) {
    case Type::Kind::scalar:
      return type.word;
    case Type::Kind::structure:
      return type.structure->keys.empty() ? "nothing"
                                          : "[" + type.structure->name + "](#" + anchor(type.structure->name) + ")";
    case Type::Kind::list:
      break;
  }
  return word_of(type.element.front()) + (type.one_or_many ? ", or a list" : ", a list");
}

std::string default_of(const Structure& structure, const Key& key) {
  if (key.choice < 0) {
    return key.required ? "**required**" : key.otherwise;
  }
  const Choice& choice = structure.choices[static_cast<std::size_t>(key.choice)];
  return choice.required ? "**one of these**" : choice.otherwise;
}

std::string other_forms(const Structure& structure) {
  std::string out;
  if (!structure.shorthand.empty()) {
    out += "A value that is not a mapping stands for `" + structure.shorthand + "`.\n\n";
  }
  if (structure.bare_names) {
    out += "A name alone stands for the mapping with that name and defaults.\n\n";
  }
  for (std::size_t choice = 0; choice < structure.choices.size(); ++choice) {
    std::string names;
    for (const Key& key : structure.keys) {
      if (key.choice == static_cast<int>(choice)) {
        names += (names.empty() ? "`" : ", `") + key.name + "`";
      }
    }
    out += (structure.choices[choice].required ? "Exactly one of " : "At most one of ") + names + ".\n\n";
  }
  return out;
}

std::string section(const Structure& structure) {
  std::string out = "## " + structure.name + "\n\n" + structure.doc + "\n\n" + other_forms(structure);
  out += "| key | value | default | meaning |\n|---|---|---|---|\n";
  for (const Key& key : structure.keys) {
    out +=
        "| `" + key.name + "` | " + word_of(key.type) + " | " + default_of(structure, key) + " | " + key.doc + " |\n";
  }
  return out + "\n";
}

constexpr const char* grammar =
    R"(## Values

| value | written as |
|---|---|
| number | decimal, or hexadecimal with `0x`; never quoted |
| duration | a number with `ps`, `ns`, `us`, `ms`, `s` or `min` |
| rate | bits per second: a number with `b/s`, `kb/s`, `Mb/s`, `Gb/s` or `Tb/s` (powers of 1000), or `unlimited` |
| size | bytes: a number with `B`, `kB`, `MB`, `GB` (powers of 1000), `KiB`, `MiB` or `GiB` (powers of 1024) |
| probability | a number from 0 to 1, or a percentage such as `0.1%` |
| 24-bit number | a queue pair number or PSN |

Fractions are exact: `1.5us` is 1500 ns, and `0.5ps` an error. A quantity without its unit is an error, except 0.
Unknown keys, duplicate keys and values out of range are errors; `nbx check FILE` reports all of them with their places.
Anchors, aliases and merge keys of YAML may be used.

)";

std::string reference(const Model& model, const std::string& title, const std::string& command) {
  std::string out = "# " + title + "\n\n<!-- Printed by `nbx docs " + command +
                    "`; change the description of the keys instead. -->\n\n";
  out += grammar;
  for (const Structure& structure : model) {
    if (!structure.keys.empty()) {
      out += section(structure);
    }
  }
  out.pop_back();
  return out;
}

std::string counter_table(const CounterInfo* begin, const CounterInfo* end) {
  std::string out = "| name | counts |\n|---|---|\n";
  for (const CounterInfo* row = begin; row != end; ++row) {
    out += "| `" + std::string(row->name) + "` | " + std::string(row->help) + " |\n";
  }
  return out;
}

}  // namespace

std::string cluster_reference() { return reference(cluster_model(), "Cluster file", "cluster"); }
std::string job_reference() { return reference(job_model(), "Jobs", "job"); }
std::string profile_reference() { return reference(profile_model(), "Profiles", "profile"); }
std::string nic_reference() { return reference(nic_model(), "NICs", "nic"); }

std::string scenario_reference() {
  constexpr const char* limits[] = {"number", "number", "rate", "number", "probability", "size", "duration"};
  std::string out = reference(scenario_model(), "Scenarios", "scenario");
  out +=
      "\n## Assertions\n\nA metric, one of `<`, `<=`, `==`, `>=`, `>`, and a limit: `jct_ratio <= 1.05`. `no` and a "
      "count stand for its being 0: `no qp errors`. Any [counter](counters.md), of the ghosts and the simulated node "
      "together, is a count too: `counter.np_cnp_sent > 0`. The baseline is the same job on the same cluster without "
      "the "
      "faults.\n\n| metric | limit | is |\n|---|---|---|\n";
  for (const MetricInfo& metric : metric_info) {
    out += "| `" + std::string(metric.name) + "` | " + limits[static_cast<std::size_t>(metric.unit)] + " | " +
           std::string(metric.text) + " |\n";
  }
  return out;
}

std::string counter_reference() {
  return "# Counters\n\n<!-- Printed by `nbx docs counters`; change dataplane/stats/counters.def instead. -->\n\n"
         "Every port has these, with the names of mlx5 and of the Linux kernel's soft-RoCE where those count the "
         "same.\n\n"
         "## Drops\n\nA frame that goes no further is counted under exactly one of these; captures name the reason in "
         "the "
         "frame's comment.\n\n" +
         counter_table(drop_info.data() + 1, drop_info.data() + drop_info.size()) + "\n## Other counters\n\n" +
         counter_table(counter_info.data(), counter_info.data() + counter_info.size());
}

}  // namespace nbx::config
