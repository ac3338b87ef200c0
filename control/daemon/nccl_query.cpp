// What NCCL's ghost ranks did, as JSON.
#include <algorithm>

#include "daemon/queries.hpp"
#include "nccl-glue/plan/names.hpp"
#include "nccl-glue/service/steps.hpp"

namespace nbx::daemon {
namespace {

constexpr std::size_t operations_max = 256;  // of a communicator, the latest; the same of its steps

double milliseconds(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

/// What `time` is made of: the parts add up to it.
Json explained_json(const TimeShares& shares, Duration time) {
  return {{"queueing_ms", milliseconds(shares[Cause::queueing])},
          {"serialisation_ms", milliseconds(shares[Cause::serialisation])},
          {"propagation_ms", milliseconds(shares[Cause::propagation])},
          {"recovery_ms", milliseconds(shares[Cause::recovery])},
          {"late_ghost_ms", milliseconds(shares[Cause::late_ghost])},
          {"between_ghosts_ms", milliseconds(shares[Cause::between_ghosts])},
          {"real_ranks_ms", milliseconds(time - shares.sum())}};
}

const char* name(Effect effect) {
  switch (effect) {
    case Effect::loss:
      return "loss";
    case Effect::corrupt:
      return "corrupt";
    case Effect::duplicate:
      return "duplicate";
    case Effect::ecn:
      return "ecn";
    case Effect::delay:
      return "delay";
    case Effect::reorder:
      return "reorder";
    case Effect::no_room:
      return "no_room";
    case Effect::link_down:
      return "link_down";
  }
  return "?";
}

Json faults_json(const std::vector<Firing>& firings) {
  Json rows = Json::array();
  for (const Firing& firing : firings) {
    Json& row = rows.emplace_back(Json{{"direction", firing.direction == Direction::to_node ? "to_node" : "from_node"},
                                       {"effect", name(firing.effect)}});
    if (firing.rule != 0) {
      row["rule"] = firing.rule;
    }
    row["frames"] = firing.frames;
    row["cost_ms"] = milliseconds(firing.cost);
    if (firing.frames != 0) {
      row["first"] = {{"dest_qpn", firing.dest_qpn.value},
                      {"psn", firing.psn.value},
                      {"opcode", std::string{wire::traits(firing.opcode).name}}};
    }
  }
  return rows;
}

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
  if (report.last_message != Instant{}) {
    row["behind_ms"] = milliseconds(report.behind);
    row["explained"] = explained_json(report.shares, report.last_message - report.called - report.behind);
    row["faults"] = faults_json(report.firings);
  }
  return row;
}

Json step_json(const nccl::WorldReport& world, const nccl::StepReport& step, std::size_t number) {
  Json row = {{"comm", world.hash},
              {"step", number},
              {"operations", step.operations},
              {"bytes", step.bytes},
              {"time_ms", milliseconds(step.time)},
              {"in_operations_ms", milliseconds(step.in_operations)}};
  if (step.latest_rank >= 0) {
    row["latest_ghost_rank"] = step.latest_rank;
    row["latest_by_ms"] = milliseconds(step.latest_by);
  }
  row["explained"] = explained_json(step.shares, step.in_operations);
  row["faults"] = faults_json(step.firings);
  return row;
}

template <class Row>
std::size_t first_shown(const std::vector<Row>& rows) {
  return rows.size() - std::min(rows.size(), operations_max);
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
  Json doc = {{"communicators", Json::array()}, {"operations", Json::array()}, {"steps", Json::array()}};
  for (const auto& port : emulator.ports()) {
    if (port->nccl == nullptr) {
      continue;
    }
    const auto worlds = emulator.ask(*port, [&port](pipeline::Shard&) { return port->nccl->report(); });
    for (const nccl::WorldReport& world : worlds.value_or(std::vector<nccl::WorldReport>{})) {
      doc["communicators"].push_back(world_json(world));
      for (std::size_t i = first_shown(world.recent); i < world.recent.size(); ++i) {
        doc["operations"].push_back(operation_json(world, world.recent[i]));
      }
      const std::vector<nccl::StepReport> steps = nccl::steps_of(world.recent);
      for (std::size_t i = first_shown(steps); i < steps.size(); ++i) {
        doc["steps"].push_back(step_json(world, steps[i], i + 1));
      }
    }
  }
  return doc;
}

}  // namespace nbx::daemon
