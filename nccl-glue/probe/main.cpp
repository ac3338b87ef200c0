// `nbx-probe`: correctness and time of each collective on this node's GPU, in the terms of nccl-tests, over the
// vendor's NCCL as it is. One process is one rank. The same command serves real GPUs and stand-ins, real peers and
// ghosts.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "nccl-glue/probe/libraries.hpp"
#include "nccl-glue/probe/workload.hpp"

namespace nbx::nccl::probe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int exit_wrong = 1;
constexpr int exit_usage = 2;

struct Options {
  std::vector<Kind> kinds;
  std::uint64_t begin = 1 << 20;
  std::uint64_t end = 1 << 20;
  std::uint64_t factor = 2;
  int iterations = 20;
  int warm_up = 5;
  bool check = true;
  int each = 0;
  DataType type = DataType::f32;
  RedOp op = RedOp::sum;
  int root = 0;
  int ranks = 1;
  int rank = 0;
  int real_ranks = 0;
  int device = 0;
  std::string id_file;
  bool json = false;
};

/// Times in microseconds, bandwidths in GB/s; `wrong` below 0: not checked.
struct Measured {
  double time = 0;            // of a call, on average
  std::vector<double> times;  // with --each
  double algorithm_bandwidth = 0;
  double bus_bandwidth = 0;
  std::int64_t wrong = -1;
};

struct Row {
  Workload workload;
  Measured out_of_place;
  std::optional<Measured> in_place;
};

class Probe {
 public:
  Probe(const Options& options, const Libraries& libraries)
      : options_(options), cuda_(libraries.cuda), nccl_(libraries.nccl) {
    check(cuda_.set_device(options.device), "cudaSetDevice");
    check(cuda_.stream_create(&stream_, non_blocking), "cudaStreamCreate");
    // In place needs room for every rank's part; out of place the same in two buffers.
    const std::size_t size = options.end + static_cast<std::size_t>(options.ranks) * sizeof(double);
    check(cuda_.malloc(&send_, size), "cudaMalloc");
    check(cuda_.malloc(&receive_, size), "cudaMalloc");
    check(nccl_.version(&version_), "ncclGetVersion");
    check(nccl_.init_rank(&comm_, options.ranks, exchange_id(), options.rank), "ncclCommInitRank");
  }

  [[nodiscard]] int version() const { return version_; }

  Row measure(const Workload& workload) {
    Row row{workload, measure(workload, false), std::nullopt};
    if (workload.has_in_place()) {
      row.in_place = measure(workload, true);
    }
    return row;
  }

  void finish() { check(nccl_.destroy(comm_), "ncclCommDestroy"); }

 private:
  void check(ncclResult_t result, const char* function) const {
    if (result != announce::ncclSuccess) {
      throw std::runtime_error(std::string(function) + ": " + nccl_.last_error(comm_));
    }
  }
  void check(int error, const char* function) const {
    if (error != 0) {
      throw std::runtime_error(std::string(function) + ": " + cuda_.error_string(error));
    }
  }

  /// Rank 0 makes the id; where there are other real ranks it goes through a file.
  ncclUniqueId exchange_id() {
    ncclUniqueId id{};
    if (options_.rank == 0) {
      check(nccl_.unique_id(&id), "ncclGetUniqueId");
      if (!options_.id_file.empty()) {
        const std::string part = options_.id_file + ".part";
        std::ofstream(part, std::ios::binary).write(id.internal.data(), id.internal.size());
        std::filesystem::rename(part, options_.id_file);
      }
      return id;
    }
    while (!std::filesystem::exists(options_.id_file)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::ifstream(options_.id_file, std::ios::binary).read(id.internal.data(), id.internal.size());
    return id;
  }

  void call(const Workload& w, const std::byte* send, std::byte* receive) {
    const auto type = static_cast<ncclDataType_t>(w.type);
    const auto op = static_cast<ncclRedOp_t>(w.op);
    const std::size_t part = w.count * type_size(w.type);
    const auto message = [&](int to, int from, std::size_t at, std::size_t into) {
      check(nccl_.send(send + at, w.count, type, to, comm_, stream_), "ncclSend");
      check(nccl_.receive(receive + into, w.count, type, from, comm_, stream_), "ncclRecv");
    };
    switch (w.kind) {
      case Kind::all_reduce:
        return check(nccl_.all_reduce(send, receive, w.count, type, op, comm_, stream_), "ncclAllReduce");
      case Kind::all_gather:
        return check(nccl_.all_gather(send, receive, w.count, type, comm_, stream_), "ncclAllGather");
      case Kind::reduce_scatter:
        return check(nccl_.reduce_scatter(send, receive, w.count, type, op, comm_, stream_), "ncclReduceScatter");
      case Kind::broadcast:
        return check(nccl_.broadcast(send, receive, w.count, type, w.root, comm_, stream_), "ncclBroadcast");
      case Kind::reduce:
        return check(nccl_.reduce(send, receive, w.count, type, op, w.root, comm_, stream_), "ncclReduce");
      case Kind::send_receive:
        check(nccl_.group_start(), "ncclGroupStart");
        message((w.rank + 1) % w.ranks, (w.rank + w.ranks - 1) % w.ranks, 0, 0);
        return check(nccl_.group_end(), "ncclGroupEnd");
      case Kind::all_to_all:
        check(nccl_.group_start(), "ncclGroupStart");
        for (int peer = 0; peer < w.ranks; peer++) {
          message(peer, peer, static_cast<std::size_t>(peer) * part, static_cast<std::size_t>(peer) * part);
        }
        return check(nccl_.group_end(), "ncclGroupEnd");
    }
  }

  void synchronize() {
    check(cuda_.stream_synchronize(stream_), "cudaStreamSynchronize");
    ncclResult_t error = announce::ncclSuccess;
    check(nccl_.async_error(comm_, &error), "ncclCommGetAsyncError");
    check(error, "NCCL");
  }

  Measured measure(const Workload& w, bool in_place) {
    const std::size_t element = type_size(w.type);
    std::byte* send = static_cast<std::byte*>(send_);
    std::byte* receive = static_cast<std::byte*>(receive_);
    if (in_place) {
      receive = send + w.in_place_receive_offset() * element;
      send += w.in_place_offset() * element;
    }
    for (int i = 0; i < options_.warm_up; i++) {
      call(w, send, receive);
    }
    synchronize();
    Measured measured;
    const Clock::time_point start = Clock::now();
    Clock::time_point last = start;
    for (int i = 0; i < options_.iterations; i++) {
      call(w, send, receive);
      if (options_.each == 0) {
        continue;
      }
      synchronize();
      if ((i + 1) % options_.each == 0) {
        const Clock::time_point now = Clock::now();
        measured.times.push_back(std::chrono::duration<double, std::micro>(now - last).count() / options_.each);
        last = now;
      }
    }
    synchronize();
    measured.time = std::chrono::duration<double, std::micro>(Clock::now() - start).count() / options_.iterations;
    measured.algorithm_bandwidth = static_cast<double>(w.size()) / measured.time / 1e3;
    measured.bus_bandwidth = measured.algorithm_bandwidth * w.bus_factor();
    if (options_.check) {
      measured.wrong = wrong(w, send, receive);
    }
    return measured;
  }

  std::int64_t wrong(const Workload& w, std::byte* send, std::byte* receive) {
    const std::vector<std::byte> data = input(w, w.rank);
    const std::vector<std::byte> wanted = expected(w);
    std::vector<std::byte> received(wanted.size());
    check(cuda_.copy(send, data.data(), data.size(), host_to_device, stream_), "cudaMemcpyAsync");
    call(w, send, receive);
    check(cuda_.copy(received.data(), receive, received.size(), device_to_host, stream_), "cudaMemcpyAsync");
    synchronize();
    return static_cast<std::int64_t>(count_wrong(w, received, wanted));
  }

  const Options& options_;
  Cuda cuda_;
  Nccl nccl_;
  int version_ = 0;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  void* send_ = nullptr;
  void* receive_ = nullptr;
};

nlohmann::ordered_json json_of(const Measured& m) {
  nlohmann::ordered_json document{{"time", m.time}, {"alg_bw", m.algorithm_bandwidth}, {"bus_bw", m.bus_bandwidth}};
  if (m.wrong >= 0) {
    document["nwrong"] = m.wrong;
  }
  if (!m.times.empty()) {
    document["times"] = m.times;
  }
  return document;
}

void print_json(const Options& options, int version, const std::vector<Row>& rows) {
  nlohmann::ordered_json document{
      {"nccl_version", version},
      {"ranks", options.ranks},
      {"real_ranks", options.real_ranks},
      {"rank", options.rank},
      {"config", {{"iters", options.iterations}, {"warmup_iters", options.warm_up}, {"check", options.check}}},
      {"results", nlohmann::ordered_json::array()}};
  std::int64_t wrong = 0;
  double bandwidth = 0;
  std::size_t measured = 0;
  for (const Row& row : rows) {
    const Workload& w = row.workload;
    nlohmann::ordered_json result{{"collective", name_of(w.kind)},
                                  {"size", w.size()},
                                  {"count", w.count},
                                  {"type", name_of(w.type)},
                                  {"redop", w.reduces() ? name_of(w.op) : "none"},
                                  {"root", w.kind == Kind::broadcast || w.kind == Kind::reduce ? w.root : -1},
                                  {"out_of_place", json_of(row.out_of_place)}};
    for (const Measured* m : {&row.out_of_place, row.in_place ? &*row.in_place : nullptr}) {
      if (m != nullptr) {
        wrong += std::max<std::int64_t>(m->wrong, 0);
        bandwidth += m->bus_bandwidth;
        measured++;
      }
    }
    if (row.in_place) {
      result["in_place"] = json_of(*row.in_place);
    }
    document["results"].push_back(result);
  }
  document["out_of_bounds"] = {{"count", wrong}, {"okay", wrong == 0}};
  document["average_bus_bandwidth"] = measured == 0 ? 0.0 : bandwidth / static_cast<double>(measured);
  std::cout << document.dump(2) << '\n';
}

void print_measured(const Measured& m) {
  std::cout << std::setw(11) << std::fixed << std::setprecision(1) << m.time << std::setw(9) << std::setprecision(3)
            << m.algorithm_bandwidth << std::setw(9) << m.bus_bandwidth << std::setw(8)
            << (m.wrong < 0 ? "N/A" : std::to_string(m.wrong));
}

void print_text(const std::vector<Row>& rows) {
  std::cout
      << "#                                                          out-of-place                       in-place\n"
         "#     collective        size      count      type  redop   time(us)    algbw    busbw  #wrong   time(us)    "
         "algbw    busbw  #wrong\n";
  for (const Row& row : rows) {
    const Workload& w = row.workload;
    std::cout << std::setw(16) << name_of(w.kind) << std::setw(12) << w.size() << std::setw(11) << w.count
              << std::setw(10) << name_of(w.type) << std::setw(7) << (w.reduces() ? name_of(w.op) : "none");
    print_measured(row.out_of_place);
    if (row.in_place) {
      print_measured(*row.in_place);
    }
    std::cout << '\n';
  }
}

bool any_wrong(const Row& row) { return row.out_of_place.wrong > 0 || (row.in_place && row.in_place->wrong > 0); }

int from_environment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

template <class Enum>
std::map<std::string, Enum> names(std::initializer_list<Enum> values) {
  std::map<std::string, Enum> table;
  for (const Enum value : values) {
    table[name_of(value)] = value;
  }
  return table;
}

void add_options(CLI::App& app, Options& options) {
  options.ranks = from_environment("WORLD_SIZE", 1);
  options.rank = from_environment("RANK", 0);
  options.device = from_environment("LOCAL_RANK", 0);
  app.add_option("COLLECTIVE", options.kinds, "all of them when none is named")
      ->transform(
          CLI::CheckedTransformer(names({Kind::all_reduce, Kind::all_gather, Kind::reduce_scatter, Kind::broadcast,
                                         Kind::reduce, Kind::send_receive, Kind::all_to_all})));
  app.add_option("-b,--begin", options.begin, "smallest size, in bytes, or as in 1M")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("-e,--end", options.end, "largest size")->transform(CLI::AsSizeValue(false));
  app.add_option("-f,--factor", options.factor, "from one size to the next")->check(CLI::Range(2, 1 << 20));
  app.add_option("-n,--iters", options.iterations, "calls that are timed")->check(CLI::PositiveNumber);
  app.add_option("-w,--warmup", options.warm_up, "calls before them")->check(CLI::NonNegativeNumber);
  app.add_flag(
         "--each{1}", options.each,
         "complete every call before the next, and list the times (JSON); --each=N lists the means of N calls in\n"
         "a row: where two ranks are apart, the calls of one are short and long in turn")
      ->check(CLI::PositiveNumber);
  app.add_option("-c,--check", options.check, "0: do not compare the results");
  app.add_option("-d,--datatype", options.type, "of the elements")
      ->transform(
          CLI::CheckedTransformer(names({DataType::i8, DataType::u8, DataType::i32, DataType::u32, DataType::i64,
                                         DataType::u64, DataType::f16, DataType::f32, DataType::f64, DataType::bf16})));
  app.add_option("-o,--op", options.op, "reduction")
      ->transform(CLI::CheckedTransformer(names({RedOp::sum, RedOp::prod, RedOp::max, RedOp::min, RedOp::avg})));
  app.add_option("-r,--root", options.root, "of broadcast and reduce")->check(CLI::NonNegativeNumber);
  app.add_option("--ranks", options.ranks, "of the communicator (WORLD_SIZE)")->check(CLI::PositiveNumber);
  app.add_option("--rank", options.rank, "of this process (RANK)")->check(CLI::NonNegativeNumber);
  app.add_option("--real-ranks", options.real_ranks,
                 "the first so many are real, and ghosts contribute the identity; all when left out")
      ->check(CLI::PositiveNumber);
  app.add_option("--device", options.device, "GPU (LOCAL_RANK)")->check(CLI::NonNegativeNumber);
  app.add_option("--id-file", options.id_file, "where rank 0 leaves the unique id for the other real ranks");
  app.add_flag("--json", options.json, "print one JSON document");
  app.footer("Example: nbx run -- nbx-probe all_reduce --ranks 4 --real-ranks 1 -b 64K -e 16M -f 4 --json");
}

/// What is wrong with the options, or nothing.
std::string complete(Options& options) {
  if (options.kinds.empty()) {
    options.kinds = {Kind::all_reduce, Kind::all_gather,   Kind::reduce_scatter, Kind::broadcast,
                     Kind::reduce,     Kind::send_receive, Kind::all_to_all};
  }
  options.real_ranks = options.real_ranks == 0 ? options.ranks : options.real_ranks;
  if (options.rank >= options.ranks || options.root >= options.ranks || options.real_ranks > options.ranks) {
    return "--rank, --root and --real-ranks lie within --ranks";
  }
  if (options.rank >= options.real_ranks) {
    return "--rank names a ghost: the first --real-ranks ranks are real";
  }
  if (options.rank > 0 && options.id_file.empty()) {
    return "--id-file is needed: rank 0 leaves the unique id there";
  }
  return options.begin > options.end ? "--begin is beyond --end" : "";
}

int run(const Options& options) {
  const Result<Libraries> libraries = load_libraries();
  if (!libraries) {
    std::cerr << "nbx-probe: " << libraries.error().message << '\n';
    return exit_wrong;
  }
  Probe probe(options, *libraries);
  std::vector<Row> rows;
  for (const Kind kind : options.kinds) {
    const Workload shape{.kind = kind,
                         .type = options.type,
                         .op = options.op,
                         .root = options.root,
                         .ranks = options.ranks,
                         .real_ranks = options.real_ranks,
                         .rank = options.rank};
    for (std::uint64_t size = options.begin; size <= options.end; size *= options.factor) {
      if (const Workload workload = shape.sized(size); workload.count > 0) {
        rows.push_back(probe.measure(workload));
      }
    }
  }
  probe.finish();
  if (options.json) {
    print_json(options, probe.version(), rows);
  } else {
    print_text(rows);
  }
  return std::ranges::any_of(rows, any_wrong) ? exit_wrong : 0;
}

}  // namespace
}  // namespace nbx::nccl::probe

int main(int argc, char** argv) {
  namespace probe = nbx::nccl::probe;
  CLI::App app("Correctness and time of NCCL's collectives, in the terms of nccl-tests", "nbx-probe");
  probe::Options options;
  probe::add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  if (const std::string wrong = probe::complete(options); !wrong.empty()) {
    std::cerr << "nbx-probe: " << wrong << '\n';
    return probe::exit_usage;
  }
  try {
    return probe::run(options);
  } catch (const std::exception& e) {
    std::cerr << "nbx-probe: " << e.what() << '\n';
    return probe::exit_wrong;
  }
}
