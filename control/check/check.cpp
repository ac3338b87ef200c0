#include "check/check.hpp"

#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "config/job.hpp"
#include "config/load.hpp"
#include "config/nic.hpp"
#include "config/scenario.hpp"

namespace nbx::check {
namespace {

using config::Diagnostic;
using config::Diagnostics;
using Json = nlohmann::ordered_json;

struct Verdict {
  std::string file;
  std::string summary;  // of a sound file
  Diagnostics diagnostics;
  Diagnostics warnings;
};

std::string counted(std::size_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

Verdict check_file(const std::string& file) {
  Verdict verdict{file, {}, {}, {}};
  switch (config::file_kind(file, verdict.diagnostics)) {
    case config::FileKind::cluster: {
      config::Loaded loaded = config::load_cluster(file);
      verdict.summary = "cluster '" + loaded.config.name + "': " + counted(loaded.config.ports.size(), "port") + ", " +
                        counted(loaded.config.nodes.size(), "real node") + ", " +
                        counted(loaded.config.ghosts.size(), "ghost");
      verdict.diagnostics = std::move(loaded.diagnostics);
      verdict.warnings = std::move(loaded.warnings);
      break;
    }
    case config::FileKind::profile: {
      config::LoadedProfile loaded = config::load_profile(file);
      verdict.summary = "profile '" + loaded.profile.name + "'";
      verdict.diagnostics = std::move(loaded.diagnostics);
      break;
    }
    case config::FileKind::job: {
      config::LoadedJob loaded = config::load_job(file, 0);
      verdict.summary = "job '" + loaded.job.name + "': " + counted(loaded.job.each_step.size(), "operation") + " in " +
                        counted(loaded.job.steps, "step");
      verdict.diagnostics = std::move(loaded.diagnostics);
      break;
    }
    case config::FileKind::nic: {
      config::LoadedNic loaded = config::load_nic(file);
      verdict.summary = "NIC '" + loaded.nic.name + "'";
      verdict.diagnostics = std::move(loaded.diagnostics);
      break;
    }
    case config::FileKind::scenario: {
      config::LoadedScenario loaded = config::load_scenario(file);
      verdict.summary = "scenario '" + loaded.scenario.name +
                        "': " + counted(loaded.scenario.assertions.size(), "assertion") + " about job '" +
                        loaded.job.name + "' on " + counted(config::ranks_of(loaded.cluster), "rank");
      verdict.diagnostics = std::move(loaded.diagnostics);
      verdict.warnings = std::move(loaded.warnings);
      break;
    }
    case config::FileKind::unknown:
      break;
  }
  return verdict;
}

Json to_json(const config::SourcePos& pos, const std::string& message) {
  return {{"file", *pos.file}, {"line", pos.line}, {"column", pos.column}, {"message", message}};
}

Json to_json(const Diagnostic& diagnostic) {
  Json out = to_json(diagnostic.pos, diagnostic.message);
  out["notes"] = Json::array();
  for (const config::Note& note : diagnostic.notes) {
    out["notes"].push_back(to_json(note.pos, note.message));
  }
  return out;
}

Json to_json(const Diagnostics& diagnostics) {
  Json out = Json::array();
  for (const Diagnostic& diagnostic : diagnostics) {
    out.push_back(to_json(diagnostic));
  }
  return out;
}

}  // namespace

int check(const std::vector<std::string>& files, const Options& options, std::ostream& out, std::ostream& err) {
  bool sound = true;
  Json report = Json::array();
  for (const std::string& file : files) {
    const Verdict verdict = check_file(file);
    sound = sound && verdict.diagnostics.empty();
    if (options.json) {
      report.push_back({{"file", file},
                        {"ok", verdict.diagnostics.empty()},
                        {"errors", to_json(verdict.diagnostics)},
                        {"warnings", to_json(verdict.warnings)}});
      continue;
    }
    for (const Diagnostic& warning : verdict.warnings) {
      err << warning;
    }
    if (verdict.diagnostics.empty()) {
      out << file << ": " << verdict.summary << '\n';
    } else {
      for (const Diagnostic& diagnostic : verdict.diagnostics) {
        err << diagnostic;
      }
    }
  }
  if (options.json) {
    out << report.dump(2) << '\n';
  }
  return sound ? 0 : 2;
}

}  // namespace nbx::check
