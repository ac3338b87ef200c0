#include "config/job.hpp"

#include <limits>

#include "config/job_keys.hpp"
#include "config/reader.hpp"

namespace nbx::config {
namespace {

std::string number(std::uint64_t n) { return std::to_string(n); }

const Group* group_of(const JobOperation& operation) {
  return std::visit(
      [](const auto& what) -> const Group* {
        if constexpr (requires { what.group; }) {
          return &what.group;
        } else {
          return nullptr;
        }
      },
      operation.what);
}

void check_rank(const Located<std::uint32_t>& rank, std::uint32_t ranks, Diagnostics& out) {
  if (*rank >= ranks) {
    out.push_back(
        {rank.pos, "there is no rank " + number(*rank) + ": the cluster has ranks 0 to " + number(ranks - 1)});
  }
}

void check_group(const Group& group, const SourcePos& pos, std::uint32_t ranks, Diagnostics& out) {
  const std::uint64_t size = group.size == 0 ? ranks / group.stride : group.size;
  if (size < 2) {
    out.push_back({pos, "a group of one rank has nobody to talk to"});
  } else if (ranks % (size * group.stride) != 0) {
    out.push_back({pos, "groups of " + number(size) + " ranks, " + number(group.stride) +
                            " apart, take a multiple of " + number(size * group.stride) + " ranks; the cluster has " +
                            number(ranks)});
  }
}

void check_job(const Job& job, std::uint32_t ranks, Diagnostics& out) {
  for (const Located<JobOperation>& operation : job.each_step) {
    if (const Group* group = group_of(*operation)) {
      check_group(*group, operation.pos, ranks, out);
    }
    if (const auto* flow = std::get_if<OneFlow>(&operation->what)) {
      check_rank(flow->from, ranks, out);
      check_rank(flow->to, ranks, out);
      if (*flow->from == *flow->to) {
        out.push_back({flow->to.pos, "a flow from rank " + number(*flow->to) + " to itself"});
      }
    }
  }
  for (const Located<RankRange>& range : job.closed_form) {
    if (range->first == 0) {
      out.push_back({range.pos, "rank 0 is the real node: it sends packets"});
    }
    if (range->last != std::numeric_limits<std::uint32_t>::max()) {
      check_rank({range->last, range.pos}, ranks, out);
    }
  }
  for (const SlowRank& straggler : job.stragglers) {
    check_rank(straggler.rank, ranks, out);
  }
}

void read_job(const std::optional<Value>& document, std::uint32_t ranks, LoadedJob& loaded) {
  if (document) {
    read(*document, loaded.job, {}, loaded.diagnostics);
    if (loaded.diagnostics.empty() && loaded.job.each_step.empty()) {
      loaded.diagnostics.push_back({document->pos, "a job without an operation in 'each_step'"});
    }
    if (loaded.diagnostics.empty() && ranks != 0) {
      check_job(loaded.job, ranks, loaded.diagnostics);
    }
  }
  sort(loaded.diagnostics);
}

}  // namespace

LoadedJob job_of(const std::optional<Value>& document, std::uint32_t ranks) {
  LoadedJob loaded;
  read_job(document, ranks, loaded);
  return loaded;
}

LoadedJob load_job(const std::string& path, std::uint32_t ranks) {
  LoadedJob loaded;
  read_job(read_document(path, loaded.diagnostics), ranks, loaded);
  return loaded;
}

LoadedJob parse_job(const std::string& name, const std::string& text, std::uint32_t ranks) {
  LoadedJob loaded;
  read_job(parse_document(name, text, loaded.diagnostics), ranks, loaded);
  return loaded;
}

}  // namespace nbx::config
