// A job for `nbx sim`: what the ranks of a training run compute and send, step by step.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "config/document.hpp"
#include "config/scalar.hpp"
#include "config/source.hpp"

namespace nbx::config {

/// Ranks that work together: `size` of them, `stride` apart; all groups of the cluster do the same at once.
struct Group {
  std::uint32_t size = 0;  // 0: as many as there are
  std::uint32_t stride = 1;
};

struct Compute {
  Duration time{};
};
/// `bytes` of the whole vector, as nccl-tests reckon them.
struct RingCollective {
  ByteCount bytes;
  std::uint32_t channels = 1;
  ByteCount slice{512U << 10U};  // of a chunk; what is received and passed on at once
  Group group;
};
enum class Algorithm : std::uint8_t { ring, tree };
struct AllReduce : RingCollective {
  Algorithm algorithm = Algorithm::ring;
};
struct AllGather : RingCollective {};
struct ReduceScatter : RingCollective {};
struct Broadcast : RingCollective {};  // from the first rank of the group, along the ring
/// `bytes` are what each rank sends, to all together.
struct AllToAll {
  ByteCount bytes;
  Group group;
};
/// Each rank sends to the next of its group, the last one to nobody: a pipeline.
struct SendRecv {
  ByteCount bytes;
  Group group;
};
struct OneFlow {
  Located<std::uint32_t> from;
  Located<std::uint32_t> to;
  ByteCount bytes;
};
/// Every rank of the group sends `bytes` to its first one.
struct Incast {
  ByteCount bytes;
  Group group;
};

struct JobOperation {
  std::variant<Compute, AllReduce, AllGather, ReduceScatter, Broadcast, AllToAll, SendRecv, OneFlow, Incast> what;
  bool beside = false;  // starts with the one before, not behind it
  std::string name;
};

/// A rank whose computing takes longer.
struct SlowRank {
  Located<std::uint32_t> rank;
  Factor factor;
};

struct Job {
  std::string name;
  std::string description;
  std::uint32_t steps = 1;
  std::vector<Located<JobOperation>> each_step;
  std::vector<SlowRank> stragglers;
  std::vector<Located<RankRange>> closed_form;  // between these, messages are computed and no packets sent
};

struct LoadedJob {
  Job job;
  Diagnostics diagnostics;

  [[nodiscard]] bool ok() const { return diagnostics.empty(); }
};
/// Reads and checks a job file for a cluster of so many ranks; 0: for no cluster in particular.
[[nodiscard]] LoadedJob load_job(const std::string& path, std::uint32_t ranks);
/// The same of a text; `name` stands for its file in diagnostics.
[[nodiscard]] LoadedJob parse_job(const std::string& name, const std::string& text, std::uint32_t ranks);

/// The same of a tree, if there is one.
[[nodiscard]] LoadedJob job_of(const std::optional<Value>& document, std::uint32_t ranks);

template <>
struct Words<Algorithm> {
  static constexpr auto table = words<Algorithm>({{"ring", Algorithm::ring}, {"tree", Algorithm::tree}});
};

}  // namespace nbx::config
