#include "config/scenario.hpp"

#include "config/change.hpp"
#include "config/load.hpp"
#include "config/reader.hpp"
#include "config/scenario_keys.hpp"

namespace nbx::config {
namespace {

const std::vector<std::string> roots = {"cluster", "job", "profile"};

/// A cluster and a job as trees, and the files that they came from.
struct Trees {
  std::optional<Value> cluster;
  std::string cluster_file;
  std::optional<Value> job;
};

std::optional<Value> open(const FileOrKeys& from, std::string& file, Diagnostics& out) {
  if (from.value.kind != Value::Kind::scalar) {
    return from.value;
  }
  const Located<std::string> path{from.value.text, from.value.pos};
  file = beside(path);
  Diagnostics problems;
  std::optional<Value> document = read_document(file, problems);
  for (Diagnostic& problem : problems) {
    problem.notes.push_back({path.pos, "the file is named here"});
    out.push_back(std::move(problem));
  }
  return document;
}

/// The profile of the first port, as a mapping: a name alone is what it extends.
Value* profile_of(Value& cluster) {
  for (Entry& ports : cluster.entries) {
    if (*ports.key != "ports" || ports.value.items.empty()) {
      continue;
    }
    Value& port = ports.value.items.front();
    for (Entry& entry : port.entries) {
      if (*entry.key == "profile") {
        if (entry.value.kind == Value::Kind::scalar) {
          Value extends = entry.value;
          entry.value = {};
          entry.value.kind = Value::Kind::mapping;
          entry.value.pos = extends.pos;
          entry.value.entries.push_back({{"extends", extends.pos}, std::move(extends)});
        }
        return &entry.value;
      }
    }
    Value none;
    none.pos = port.pos;
    return &port.entries.emplace_back(Entry{{"profile", port.pos}, std::move(none)}).value;
  }
  return nullptr;
}

void apply(Trees& trees, const Changes& changes, Diagnostics& out) {
  for (const Entry& entry : changes.entries) {
    const std::size_t dot = entry.key->find('.');
    const std::string root = entry.key->substr(0, dot);
    if (dot == std::string::npos || std::find(roots.begin(), roots.end(), root) == roots.end()) {
      out.push_back({entry.key.pos, "the way to a value begins with 'cluster.', 'job.' or 'profile.', not with '" +
                                        root + "'" + did_you_mean(root, roots)});
      continue;
    }
    if (!trees.cluster || !trees.job) {
      continue;
    }
    Value* tree = root == "job" ? &*trees.job : root == "cluster" ? &*trees.cluster : profile_of(*trees.cluster);
    if (tree == nullptr) {
      out.push_back({entry.key.pos, "the cluster has no port whose profile that could be"});
      continue;
    }
    change(*tree, entry.key, dot + 1, entry.value, out);
  }
}

void append(Diagnostics& to, Diagnostics&& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

void read_trees(const Trees& trees, ClusterConfig& cluster, Job& job, LoadedScenario& loaded) {
  Loaded read = cluster_of(trees.cluster_file, trees.cluster);
  const auto ranks = ranks_of(read.config);
  LoadedJob read_job = job_of(trees.job, read.ok() ? ranks : 0);
  cluster = std::move(read.config);
  job = std::move(read_job.job);
  append(loaded.diagnostics, std::move(read.diagnostics));
  append(loaded.diagnostics, std::move(read_job.diagnostics));
  append(loaded.warnings, std::move(read.warnings));
}

bool has_baseline(const Scenario& scenario) {
  for (const Assertion& assertion : scenario.assertions) {
    if (needs_baseline(assertion.metric)) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string Raw<FileOrKeys>::type() { return "path, or the keys of such a file"; }
Json Raw<FileOrKeys>::schema() { return {{"type", Json::array({"string", "object"})}}; }
void Raw<FileOrKeys>::read(const Value& value, FileOrKeys& target, Diagnostics& out) {
  if (value.kind != Value::Kind::scalar && value.kind != Value::Kind::mapping) {
    complain(value, "the path of a file, or its keys, are needed here, not " + describe_kind(value), out);
  }
  target.value = value;
}

std::string Raw<Changes>::type() { return "values by the way to them"; }
Json Raw<Changes>::schema() {
  return {{"type", "object"}, {"propertyNames", {{"pattern", R"(^(cluster|job|profile)\..+$)"}}}};
}
void Raw<Changes>::read(const Value& value, Changes& target, Diagnostics& out) {
  if (value.kind != Value::Kind::mapping) {
    complain(value, "a mapping (ways to values, and the values) is needed here, not " + describe_kind(value), out);
  }
  target.entries = value.entries;
}

std::string Raw<Assertion>::type() { return "[assertion](#assertions)"; }
Json Raw<Assertion>::schema() { return {{"type", "string"}}; }
void Raw<Assertion>::read(const Value& value, Assertion& target, Diagnostics& out) {
  if (!expect_word(value, "assertion", out)) {
    return;
  }
  Located<std::string> text{value.text, value.pos};
  text.pos.column += value.quoted ? 1 : 0;
  if (std::optional<Assertion> parsed = parse_assertion(text, out)) {
    target = std::move(*parsed);
  }
}

LoadedScenario load_scenario(const std::string& path, const Changes& more) {
  LoadedScenario loaded;
  const std::optional<Value> document = read_document(path, loaded.diagnostics);
  if (document) {
    read(*document, loaded.scenario, {}, loaded.diagnostics);
  }
  if (document && loaded.scenario.cluster.value.pos.file && loaded.scenario.job.value.pos.file) {
    Trees trees;
    trees.cluster_file = path;
    std::string job_file;
    trees.cluster = open(loaded.scenario.cluster, trees.cluster_file, loaded.diagnostics);
    trees.job = open(loaded.scenario.job, job_file, loaded.diagnostics);
    apply(trees, loaded.scenario.changes, loaded.diagnostics);
    if (has_baseline(loaded.scenario)) {
      read_trees(trees, loaded.baseline_cluster, loaded.baseline_job, loaded);
    }
    apply(trees, loaded.scenario.faults, loaded.diagnostics);
    apply(trees, more, loaded.diagnostics);
    read_trees(trees, loaded.cluster, loaded.job, loaded);
  }
  sort(loaded.diagnostics);
  sort(loaded.warnings);
  return loaded;
}

Changes parse_changes(const std::string& option, const std::vector<std::pair<std::string, std::string>>& values,
                      Diagnostics& out) {
  Changes changes;
  for (const auto& [path, text] : values) {
    if (std::optional<Value> value = parse_document(option, text, out)) {
      changes.entries.push_back({{path, value->pos}, std::move(*value)});
    }
  }
  return changes;
}

}  // namespace nbx::config
