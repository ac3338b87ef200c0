// Other tools' descriptions of links and jobs, as profiles and jobs. What has no counterpart is said where it stands:
// an imported file with warnings means less than what it was made from.
#pragma once

#include <string>
#include <string_view>

#include "config/profile.hpp"
#include "config/source.hpp"

namespace nbx::import {

struct Imported {
  std::string yaml;  // of a profile or a job, or keys for a cluster file; empty when there were errors
  config::Diagnostics diagnostics;

  [[nodiscard]] bool ok() const;
};

// `name` stands for the file in diagnostics.

/// A line of tc: `tc qdisc add dev eth0 root netem delay 10ms loss 1%`, or what follows `netem` in it. It shapes what
/// one end of a link sends; `way` says which.
[[nodiscard]] Imported from_netem(const std::string& name, std::string_view text, config::Way way);

/// A Mahimahi packet-delivery trace: a line per chance to send 1,500 bytes, its time in milliseconds.
[[nodiscard]] Imported from_mahimahi(const std::string& name, std::string_view text, config::Way way);

/// A SimAI (AICB) workload: a line per layer with computing and collectives of the three passes.
[[nodiscard]] Imported from_simai(const std::string& name, std::string_view text);

/// A Chakra execution trace of one rank, as the job of all. Places are bytes: column 1 is the first.
[[nodiscard]] Imported from_chakra(const std::string& name, std::string_view bytes);

/// A configuration of HPCC's ns-3 model or of SimAI (SimAI.conf), as `network` and `transport` of a cluster file. Of
/// its thresholds those for links of `rate` are taken.
[[nodiscard]] Imported from_hpcc(const std::string& name, std::string_view text, BitRate rate);

/// SimCCL's flows, as a job.
[[nodiscard]] Imported from_simccl(const std::string& name, std::string_view text);

/// The RoCEv2 flows of an Open Traffic Generator configuration, as a job whose ranks are the devices' addresses.
[[nodiscard]] Imported from_otg(const std::string& name, std::string_view text);

}  // namespace nbx::import
