// Files as a whole: good ones load, bad ones are reported exactly as the .expected file beside them says, and what is
// generated from the description of the keys is what the tree holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "check/check.hpp"
#include "config/generate.hpp"
#include "config/job.hpp"
#include "config/load.hpp"
#include "config/nic.hpp"

namespace nbx::config {
namespace {

namespace fs = std::filesystem;

const fs::path files = fs::path(NBX_CAPTURES).parent_path() / "config";
const fs::path root = fs::path(NBX_CAPTURES).parent_path().parent_path();

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> yaml_files(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct Checked {
  int status = 0;
  std::string out;
  std::string err;
};
Checked check(const std::vector<std::string>& names, bool json = false) {
  std::ostringstream out;
  std::ostringstream err;
  const int status = nbx::check::check(names, {.json = json}, out, err);
  return {status, out.str(), err.str()};
}

TEST(ConfigFiles, BadOnesAreReportedAtOnceWithPlaces) {
  fs::current_path(files / "bad");
  const std::vector<std::string> names = yaml_files(".");
  ASSERT_GT(names.size(), 10U);
  for (const std::string& name : names) {
    const Checked checked = check({name});
    EXPECT_EQ(checked.status, 2) << name;
    EXPECT_EQ(checked.out, "") << name;
    EXPECT_EQ(checked.err, content(fs::path(name).replace_extension(".expected"))) << name;
  }
}

TEST(ConfigFiles, WhatIsHardlyMeantIsWarnedOfAndPasses) {
  fs::current_path(files / "warned");
  for (const std::string& name : yaml_files(".")) {
    const Checked checked = check({name});
    EXPECT_EQ(checked.status, 0) << name;
    EXPECT_NE(checked.out, "") << name;
    EXPECT_EQ(checked.err, content(fs::path(name).replace_extension(".expected"))) << name;
  }
}

TEST(ConfigFiles, GoodOnesPass) {
  fs::current_path(files / "good");
  for (const std::string& name : yaml_files(".")) {
    const Checked checked = check({name});
    EXPECT_EQ(checked.status, 0) << name;
    EXPECT_EQ(checked.err, "") << name;
  }
  EXPECT_EQ(check({"full.yaml", "profile.yaml"}).out,
            "full.yaml: cluster 'full': 3 ports, 1 real node, 4 ghosts\nprofile.yaml: profile 'everything'\n");
}

TEST(ConfigFiles, ShippedProfilesPass) {
  const std::vector<std::string> names = shipped_profiles();
  for (const char* name : {"ideal", "rack-100g", "wan-30ms", "lossy-0.1pct", "burst-loss", "reorder", "ack-loss"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  for (const std::string& name : names) {
    const LoadedProfile loaded = load_profile(name);
    EXPECT_TRUE(loaded.ok()) << name;
    EXPECT_EQ(loaded.profile.name, name);
    EXPECT_FALSE(loaded.profile.description.empty()) << name;
  }
}

TEST(ConfigFiles, ShippedJobsPass) {
  for (const std::string& name : yaml_files(root / "profiles" / "jobs")) {
    for (const std::uint32_t ranks : {8U, 64U, 512U}) {
      const LoadedJob loaded = load_job(root / "profiles" / "jobs" / name, ranks);
      EXPECT_TRUE(loaded.ok()) << name;
      EXPECT_FALSE(loaded.job.description.empty()) << name;
    }
  }
}

TEST(ConfigFiles, ShippedNicsPass) {
  const std::vector<std::string> names = shipped_nics();
  for (const char* name : {"ib-spec", "rxe", "connectx-5"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  for (const std::string& name : names) {
    const LoadedNic loaded = load_nic(shipped_nics_folder() + "/" + name + ".yaml");
    EXPECT_TRUE(loaded.ok()) << name;
    EXPECT_EQ(loaded.nic.name, name);
    EXPECT_FALSE(loaded.nic.description.empty()) << name;
  }
}

/// lumina-test/lumina, cnp_check.py: which of its NICs send a notification with a NAK.
TEST(ConfigFiles, ShippedNicsDoWhatLuminaSaw) {
  for (const auto& [name, cnp_on_nak] :
       {std::pair{"connectx-4", false}, {"connectx-5", true}, {"connectx-6-dx", true}, {"e810", false}}) {
    const LoadedNic loaded = load_nic(shipped_nics_folder() + "/" + name + ".yaml");
    EXPECT_EQ(loaded.nic.behaviour.cnp_on_nak, cnp_on_nak) << name;
    EXPECT_FALSE(loaded.nic.behaviour.selective()) << name;
  }
  const rdma::Nic irn = load_nic(shipped_nics_folder() + "/irn.yaml").nic.behaviour;
  EXPECT_TRUE(irn.selective());
  EXPECT_EQ(irn.bdp_cap, 110U);
  EXPECT_EQ(irn.rto.value().high, std::chrono::microseconds{320});
}

TEST(ConfigFiles, JsonSaysTheSame) {
  fs::current_path(files / "bad");
  EXPECT_EQ(check({"neither.yaml"}, true).out, content("neither.json"));
  EXPECT_EQ(check({"neither.yaml"}, true).status, 2);
}

TEST(ConfigFiles, AFileThatIsNotThere) {
  const Checked checked = check({"/nonexistent.yaml"});
  EXPECT_EQ(checked.status, 2);
  EXPECT_EQ(checked.err, "/nonexistent.yaml: error: cannot be read: No such file or directory\n");
}

TEST(Generated, IsCurrent) {
  const std::pair<const char*, std::string> generated[] = {
      {"profiles/schema/cluster.schema.json", cluster_schema()},
      {"profiles/schema/job.schema.json", job_schema()},
      {"profiles/schema/profile.schema.json", profile_schema()},
      {"profiles/schema/nic.schema.json", nic_schema()},
      {"profiles/schema/scenario.schema.json", scenario_schema()},
      {"docs/scenario-reference.md", scenario_reference()},
      {"docs/nic-reference.md", nic_reference()},
      {"docs/cluster-reference.md", cluster_reference()},
      {"docs/job-reference.md", job_reference()},
      {"docs/profile-reference.md", profile_reference()},
      {"docs/counters.md", counter_reference()},
  };
  for (const auto& [file, text] : generated) {
    EXPECT_TRUE(content(root / file) == text) << file << " is not current: run tools/generate";
  }
}

}  // namespace
}  // namespace nbx::config
