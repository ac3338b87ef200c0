// A job for `nbx sim`: what the ranks of a training run compute and send, step by step.
#pragma once

#include <cstdint>
#include <optional>
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
enum class Algorithm : std::uint8_t { ring, tree, servers };
/// Of a network in dimensions: ranks of a dimension differ in one coordinate only, the first one's are neighbours.
struct Dimension {
  std::uint32_t size = 0;  // 0: what the others leave
  BitRate rate = BitRate::gbps(100);
};
enum class Schedule : std::uint8_t { fixed, balanced };
struct AllReduce : RingCollective {
  Algorithm algorithm = Algorithm::ring;
  std::uint32_t servers = 1;  // the first ranks of the group, for that algorithm
  std::vector<Dimension> dimensions;
  Schedule schedule = Schedule::fixed;
};
enum class BytesOf : std::uint8_t { vector, rank };
struct AllGather : RingCollective {
  BytesOf of = BytesOf::vector;
};
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
  bool beside = false;                                     // starts with the one before, not behind it
  std::optional<std::vector<Located<std::string>>> after;  // names: waits for these, not for the one before
  std::uint32_t staleness = 0;                             // steps that a rank may be ahead of it
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

/// Of the dimensions of a group of so many ranks, the sizes; nothing: they do not make up the group.
[[nodiscard]] std::optional<std::vector<std::uint32_t>> sizes_of(const std::vector<Dimension>& dimensions,
                                                                 std::uint32_t group);

/// By operation, those of the same step that a rank must have ended before it begins it: all of them are before it.
[[nodiscard]] std::vector<std::vector<std::size_t>> waits_for(const Job& job);

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
  static constexpr auto table =
      words<Algorithm>({{"ring", Algorithm::ring}, {"tree", Algorithm::tree}, {"servers", Algorithm::servers}});
};
template <>
struct Words<Schedule> {
  static constexpr auto table = words<Schedule>({{"fixed", Schedule::fixed}, {"balanced", Schedule::balanced}});
};
template <>
struct Words<BytesOf> {
  static constexpr auto table = words<BytesOf>({{"vector", BytesOf::vector}, {"rank", BytesOf::rank}});
};

}  // namespace nbx::config
