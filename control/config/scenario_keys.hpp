// The keys of a scenario file.
#pragma once

#include "config/keys.hpp"
#include "config/scenario.hpp"

namespace nbx::config {

template <class V>
void describe(V& v, Scenario& x) {
  v.about({.name = "scenario",
           .doc = "A job on a cluster, what goes wrong, and what has to hold all the same: for `nbx scenario`."});
  v.field("scenario", x.name, "For people.", {.required = true});
  v.field("description", x.description, "For people.");
  v.field("cluster", x.cluster, "The cluster.", {.required = true});
  v.field("job", x.job, "What its ranks do.", {.required = true});
  v.field(
      "changes", x.changes,
      "Values of the two that are others here, in the run and in the baseline. The way to a value begins with "
      "`cluster`, `job` or `profile` (of the first port) and goes on with keys and, in lists, numbers from 0 or names: "
      "`cluster.network.host_rate`, `profile.both.loss`.",
      {.fallback = "none"});
  v.field("faults", x.faults, "The same, and the baseline has none of them.", {.fallback = "none"});
  v.field("assert", x.assertions, "What has to hold.", {.required = true, .one_or_many = true});
  v.field("limit", x.limit, "Virtual time after which the job is called stuck.");
}

}  // namespace nbx::config
