// What NCCL's ghost ranks did, as JSON.
#include <algorithm>

#include "daemon/queries.hpp"
#include "nccl-glue/plan/names.hpp"

namespace nbx::daemon {
namespace {

constexpr std::size_t operations_max = 256;  // of a communicator, the latest

double milliseconds(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

Json operation_json(const nccl::WorldReport& world, const nccl::OperationReport& report) {
  const nccl::Operation& operation = report.operation;
  Json row = {{"comm", world.hash},
              {"operation", nccl::name(operation.collective)},
              {"number", report.sequence},
              {"count", operation.count},
              {"type", nccl::name(operation.type)},
              {"bytes", operation.count * nccl::type_size(operation.type)}};
  if (report.decision) {
    row["algorithm"] = nccl::name(report.decision->algorithm);
    row["protocol"] = nccl::name(report.decision->protocol);
    row["channels"] = report.decision->channels;
  }
  row["bytes_from_real"] = report.bytes_from_real;
  row["bytes_to_real"] = report.bytes_to_real;
  row["done"] = report.done;
  if (report.last_message != Instant{}) {
    row["time_ms"] = milliseconds(report.last_message - report.called);
    row["first_message_ms"] = milliseconds(report.first_message - report.called);
  }
  if (report.latest_rank >= 0) {
    row["latest_ghost_rank"] = report.latest_rank;
    row["latest_by_ms"] = milliseconds(report.latest_by);
  }
  return row;
}

Json world_json(const nccl::WorldReport& world) {
  Json row = {{"comm", world.hash},
              {"nccl", nccl::version_text(world.version)},
              {"ranks", world.ranks},
              {"real_ranks", world.real},
              {"channels", world.channels},
              {"state", world.state},
              {"operations", world.operations}};
  if (world.connected) {
    row["connect_ms"] = milliseconds(*world.connected - world.started);
  }
  return row;
}

}  // namespace

Json nccl_json(Emulator& emulator) {
  Json doc = {{"communicators", Json::array()}, {"operations", Json::array()}};
  for (const auto& port : emulator.ports()) {
    if (port->nccl == nullptr) {
      continue;
    }
    const auto worlds = emulator.ask(*port, [&port](pipeline::Shard&) { return port->nccl->report(); });
    for (const nccl::WorldReport& world : worlds.value_or(std::vector<nccl::WorldReport>{})) {
      doc["communicators"].push_back(world_json(world));
      const auto first =
          world.recent.end() - static_cast<std::ptrdiff_t>(std::min(world.recent.size(), operations_max));
      for (auto operation = first; operation != world.recent.end(); ++operation) {
        doc["operations"].push_back(operation_json(world, *operation));
      }
    }
  }
  return doc;
}

}  // namespace nbx::daemon
