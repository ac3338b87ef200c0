#include "config/job.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "config/job_keys.hpp"
#include "config/reader.hpp"

namespace nbx::config {
namespace {

constexpr std::size_t dimensions_max = 3;

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

/// Of the operations before the one at `end` the last of that name.
std::optional<std::size_t> before(const Job& job, std::size_t end, const std::string& name) {
  while (end-- != 0) {
    if (job.each_step[end]->name == name) {
      return end;
    }
  }
  return std::nullopt;
}

void check_order(const Job& job, Diagnostics& out) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < job.each_step.size(); ++i) {
    const Located<JobOperation>& operation = job.each_step[i];
    if (const auto* reduce = std::get_if<AllReduce>(&operation->what); reduce && !reduce->dimensions.empty()) {
      if (reduce->algorithm != Algorithm::ring) {
        out.push_back({operation.pos, "'dimensions' are gone through in rings: not with another 'algorithm'"});
      }
      if (reduce->dimensions.size() > dimensions_max) {
        out.push_back(
            {operation.pos, number(reduce->dimensions.size()) + " dimensions; at most " + number(dimensions_max)});
      }
    }
    if (operation->after && operation->beside) {
      out.push_back({operation.pos, "'after' and 'beside' exclude each other"});
    }
    for (const Located<std::string>& name : operation->after.value_or(std::vector<Located<std::string>>{})) {
      if (!before(job, i, *name)) {
        out.push_back(
            {name.pos, "no operation before this one has the name '" + *name + "'" + did_you_mean(*name, names)});
      }
    }
    names.push_back(operation->name);
  }
}

void check_job(const Job& job, std::uint32_t ranks, Diagnostics& out) {
  for (const Located<JobOperation>& operation : job.each_step) {
    if (const Group* group = group_of(*operation)) {
      check_group(*group, operation.pos, ranks, out);
    }
    if (const auto* reduce = std::get_if<AllReduce>(&operation->what)) {
      const std::uint32_t size = reduce->group.size == 0 ? ranks / reduce->group.stride : reduce->group.size;
      if (reduce->algorithm == Algorithm::servers && reduce->servers > size) {
        out.push_back({operation.pos, number(reduce->servers) + " servers in a group of " + number(size) + " ranks"});
      }
      if (!reduce->dimensions.empty() && !sizes_of(reduce->dimensions, size)) {
        out.push_back(
            {operation.pos, "the sizes of its dimensions do not come to a group of " + number(size) + " ranks"});
      }
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
    if (loaded.diagnostics.empty()) {
      check_order(loaded.job, loaded.diagnostics);
    }
    if (loaded.diagnostics.empty() && ranks != 0) {
      check_job(loaded.job, ranks, loaded.diagnostics);
    }
  }
  sort(loaded.diagnostics);
}

}  // namespace

std::optional<std::vector<std::uint32_t>> sizes_of(const std::vector<Dimension>& dimensions, std::uint32_t group) {
  std::uint64_t given = 1;
  std::vector<std::uint32_t> sizes;
  for (const Dimension& dimension : dimensions) {
    sizes.push_back(dimension.size);
    given = std::min<std::uint64_t>(given * std::max(dimension.size, 1U), std::uint64_t{1} << 40U);
  }
  if (const auto rest = std::find(sizes.begin(), sizes.end(), 0U); rest != sizes.end() && group % given == 0) {
    *rest = static_cast<std::uint32_t>(group / given);
    given = group;
  }
  return given == group && std::find(sizes.begin(), sizes.end(), 0U) == sizes.end() ? std::optional(sizes)
                                                                                    : std::nullopt;
}

std::vector<std::vector<std::size_t>> waits_for(const Job& job) {
  std::vector<std::vector<std::size_t>> all;
  std::vector<std::size_t> stage;  // of operations that start together: the last one before operation i
  for (std::size_t i = 0; i < job.each_step.size(); ++i) {
    const JobOperation& operation = *job.each_step[i];
    if (operation.beside && i != 0) {
      all.push_back(all.back());
    } else if (operation.after) {
      all.emplace_back();
      for (const Located<std::string>& name : *operation.after) {
        all.back().push_back(*before(job, i, *name));
      }
      stage.clear();
    } else {
      all.push_back(std::exchange(stage, {}));
    }
    stage.push_back(i);
  }
  return all;
}

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
