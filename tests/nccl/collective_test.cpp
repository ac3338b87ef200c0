// Runs a collective over N ranks, one process each, and checks every element against a value computed here.
//
//   collective_test --ranks N [--hosts H] [--op allreduce] [--type f32] [--red sum] [--count N] [--iters N]
//                   [--in-place] [--init-only] [--real R,R] [--id-file PATH] [--rank-env NAME=TEXT] [--netns PREFIX]
//                   [--lose-rank R]
//
// --real: only these ranks are started, by their numbers; the others exist elsewhere. They contribute nothing to
//   reductions and send zeros, so expected values are those over the real ranks; an average divides by N.
// --id-file: rank 0 leaves the unique id there; ranks that are started without rank 0 read it.
// --rank-env: sets a variable in each rank's environment; {rank} is its number. May be given again.
// --netns: rank R enters the network namespace PREFIX followed by R.
// --lose-rank: that rank dies before its second collective; the others must learn of it from NCCL.
//
// When NCCL reports an error the communicator is aborted, and the rank fails unless a rank was to be lost.
// It is an ordinary NCCL program: it knows nothing of what stands behind the CUDA API.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <nccl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace {

struct Options {
  int ranks = 2;
  int hosts = 0;
  int iters = 2;
  std::size_t count = 1U << 20U;
  std::string op = "allreduce";
  std::string type = "f32";
  std::string red = "sum";
  bool init_only = false;
  bool in_place = false;
  std::vector<int> real;
  std::string id_file;
  std::vector<std::string> rank_env;
  std::string netns;
  int lose_rank = -1;

  [[nodiscard]] bool is_real(int rank) const { return std::find(real.begin(), real.end(), rank) != real.end(); }
};

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) {
    throw Failure(std::string(call) + ": " + ncclGetErrorString(result) + " (" + ncclGetLastError(nullptr) + ")");
  }
}
void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) {
    throw Failure(std::string(call) + ": " + cudaGetErrorString(result));
  }
}
#define CHECK(call) check(call, #call)

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

ncclRedOp_t reduction(const std::string& name) {
  if (name == "sum") {
    return ncclSum;
  }
  if (name == "prod") {
    return ncclProd;
  }
  if (name == "max") {
    return ncclMax;
  }
  return name == "min" ? ncclMin : ncclAvg;
}

// One rank's part of a test with elements of type T.
template <class T>
class Rank {
 public:
  Rank(int rank, const Options& options, ncclDataType_t type, ncclComm_t comm)
      : rank_(rank), n_(options.ranks), o_(options), type_(type), red_(reduction(options.red)), comm_(comm) {
    const auto n = static_cast<std::size_t>(n_);
    send_count_ = o_.op == "reducescatter" ? o_.count * n : o_.count;
    receive_count_ = o_.op == "allgather" ? o_.count * n : o_.count;
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CHECK(cudaMalloc(reinterpret_cast<void**>(&send_), send_count_ * sizeof(T)));
    receive_ = send_;
    if (!(o_.in_place && o_.op == "allreduce")) {
      CHECK(cudaMalloc(reinterpret_cast<void**>(&receive_), receive_count_ * sizeof(T)));
    }
  }

  // false: the communicator had to be aborted.
  bool run() {
    for (int iteration = 0; iteration < o_.iters; ++iteration) {
      if (iteration == 1 && rank_ == o_.lose_rank) {
        _exit(77);
      }
      std::vector<T> host(send_count_);
      const auto shift = static_cast<std::size_t>(iteration);
      for (std::size_t i = 0; i < send_count_; ++i) {
        host[i] = static_cast<T>(value(rank_, i + shift));
      }
      CHECK(cudaMemcpyAsync(send_, host.data(), send_count_ * sizeof(T), cudaMemcpyHostToDevice, stream_));
      const auto start = std::chrono::steady_clock::now();
      launch();
      if (!finishes()) {
        return false;
      }
      std::vector<T> back(receive_count_);
      CHECK(cudaMemcpyAsync(back.data(), receive_, receive_count_ * sizeof(T), cudaMemcpyDeviceToHost, stream_));
      CHECK(cudaStreamSynchronize(stream_));
      const double took = milliseconds_since(start);
      compare(back, shift);
      printf("rank %d: %s %s %s count %zu iter %d: correct, %.1f ms\n", rank_, o_.op.c_str(), o_.type.c_str(),
             o_.red.c_str(), o_.count, iteration, took);
    }
    CHECK(cudaFree(send_));
    if (receive_ != send_) {
      CHECK(cudaFree(receive_));
    }
    CHECK(cudaStreamDestroy(stream_));
    return true;
  }

 private:
  // Small whole numbers, so that every order of summing gives the same result.
  static double value(int rank, std::size_t i) {
    constexpr double lowest = std::is_unsigned_v<T> ? 0 : -11;
    return static_cast<double>((i * 7 + static_cast<std::size_t>(rank) * 13) % 61) + lowest;
  }

  [[nodiscard]] double received_from(int rank, std::size_t i) const { return o_.is_real(rank) ? value(rank, i) : 0; }

  [[nodiscard]] double reduced(std::size_t i) const {
    double result = value(o_.real.front(), i);
    for (std::size_t k = 1; k < o_.real.size(); ++k) {
      const double v = value(o_.real[k], i);
      switch (red_) {
        case ncclProd:
          result *= v;
          break;
        case ncclMax:
          result = std::fmax(result, v);
          break;
        case ncclMin:
          result = std::fmin(result, v);
          break;
        default:
          result += v;
      }
    }
    return red_ == ncclAvg ? result / n_ : result;
  }

  void launch() {
    if (o_.op == "allreduce") {
      CHECK(ncclAllReduce(send_, receive_, o_.count, type_, red_, comm_, stream_));
    } else if (o_.op == "allgather") {
      CHECK(ncclAllGather(send_, receive_, o_.count, type_, comm_, stream_));
    } else if (o_.op == "reducescatter") {
      CHECK(ncclReduceScatter(send_, receive_, o_.count, type_, red_, comm_, stream_));
    } else if (o_.op == "broadcast") {
      CHECK(ncclBroadcast(send_, receive_, o_.count, type_, 0, comm_, stream_));
    } else if (o_.op == "reduce") {
      CHECK(ncclReduce(send_, receive_, o_.count, type_, red_, 0, comm_, stream_));
    } else if (o_.op == "sendrecv") {
      CHECK(ncclGroupStart());
      CHECK(ncclSend(send_, o_.count, type_, (rank_ + 1) % n_, comm_, stream_));
      CHECK(ncclRecv(receive_, o_.count, type_, (rank_ + n_ - 1) % n_, comm_, stream_));
      CHECK(ncclGroupEnd());
    } else {
      throw Failure("unknown operation " + o_.op);
    }
  }

  // Waits for the collective; false when NCCL has reported an error and the communicator is aborted.
  bool finishes() {
    while (cudaStreamQuery(stream_) == cudaErrorNotReady) {
      ncclResult_t error = ncclSuccess;
      CHECK(ncclCommGetAsyncError(comm_, &error));
      if (error != ncclSuccess && error != ncclInProgress) {
        printf("rank %d: NCCL reports %s, aborting\n", rank_, ncclGetErrorString(error));
        CHECK(ncclCommAbort(comm_));
        CHECK(cudaStreamSynchronize(stream_));
        printf("rank %d: aborted, stream drained\n", rank_);
        return false;
      }
      usleep(100);
    }
    return true;
  }

  [[nodiscard]] double expected(std::size_t i, std::size_t shift) const {
    if (o_.op == "allreduce" || o_.op == "reduce") {
      return reduced(i + shift);
    }
    if (o_.op == "allgather") {
      return received_from(static_cast<int>(i / o_.count), i % o_.count + shift);
    }
    if (o_.op == "reducescatter") {
      return reduced(static_cast<std::size_t>(rank_) * o_.count + i + shift);
    }
    return received_from(o_.op == "broadcast" ? 0 : (rank_ + n_ - 1) % n_, i + shift);
  }

  void compare(const std::vector<T>& back, std::size_t shift) const {
    if (o_.op == "reduce" && rank_ != 0) {
      return;
    }
    // An average of floating-point numbers multiplies by 1/n first: allow its rounding.
    const double slack = red_ == ncclAvg && std::is_floating_point_v<T> ? 1e-5 : 0;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < back.size(); ++i) {
      const double want = expected(i, shift);
      if (std::fabs(static_cast<double>(back[i]) - static_cast<double>(static_cast<T>(want))) > slack && wrong++ < 3) {
        fprintf(stderr, "rank %d iter %zu: [%zu] is %g, not %g\n", rank_, shift, i, static_cast<double>(back[i]), want);
      }
    }
    if (wrong != 0) {
      throw Failure(std::to_string(wrong) + " of " + std::to_string(back.size()) + " elements are WRONG");
    }
  }

  const int rank_;
  const int n_;
  const Options& o_;
  const ncclDataType_t type_;
  const ncclRedOp_t red_;
  const ncclComm_t comm_;
  std::size_t send_count_ = 0;
  std::size_t receive_count_ = 0;
  cudaStream_t stream_ = nullptr;
  T* send_ = nullptr;
  T* receive_ = nullptr;
};

bool run_typed(int rank, const Options& o, ncclComm_t comm) {
  if (o.type == "f32") {
    return Rank<float>(rank, o, ncclFloat32, comm).run();
  }
  if (o.type == "f64") {
    return Rank<double>(rank, o, ncclFloat64, comm).run();
  }
  if (o.type == "i32") {
    return Rank<std::int32_t>(rank, o, ncclInt32, comm).run();
  }
  if (o.type == "i64") {
    return Rank<std::int64_t>(rank, o, ncclInt64, comm).run();
  }
  if (o.type == "u8") {
    return Rank<std::uint8_t>(rank, o, ncclUint8, comm).run();
  }
  throw Failure("unknown type " + o.type);
}

void enter_namespace(const std::string& name) {
  const int fd = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
    throw Failure("cannot enter the network namespace " + name);
  }
  close(fd);
}

void set_environment(int rank, const Options& o) {
  // Ranks are spread over made-up hosts, so that NCCL uses the network between them.
  const int hosts = o.hosts != 0 ? o.hosts : o.ranks;
  setenv("NCCL_HOSTID", ("host-" + std::to_string(rank * hosts / o.ranks)).c_str(), 1);
  CHECK(cudaSetDevice(rank % ((o.ranks + hosts - 1) / hosts)));
  for (const std::string& setting : o.rank_env) {
    const std::size_t equals = setting.find('=');
    std::string text = setting.substr(equals + 1);
    if (const std::size_t at = text.find("{rank}"); at != std::string::npos) {
      text.replace(at, 6, std::to_string(rank));
    }
    setenv(setting.substr(0, equals).c_str(), text.c_str(), 1);
  }
  if (!o.netns.empty()) {
    enter_namespace(o.netns + std::to_string(rank));
  }
}

// Rank 0 makes the id and hands it to the others, through pipes or the file.
ncclUniqueId exchange_id(int rank, const Options& o, int in, const std::vector<int>& out) {
  ncclUniqueId id{};
  if (rank == 0) {
    CHECK(ncclGetUniqueId(&id));
    for (const int fd : out) {
      if (write(fd, &id, sizeof id) != sizeof id) {
        throw Failure("cannot hand out the unique id");
      }
    }
    if (!o.id_file.empty()) {
      const std::string partial = o.id_file + ".new";
      FILE* file = fopen(partial.c_str(), "wb");
      if (file == nullptr || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) != 0 ||
          rename(partial.c_str(), o.id_file.c_str()) != 0) {
        throw Failure("cannot write " + o.id_file);
      }
    }
    return id;
  }
  if (o.is_real(0)) {
    if (read(in, &id, sizeof id) != sizeof id) {
      throw Failure("no unique id from rank 0");
    }
    return id;
  }
  for (int tries = 0; tries < 600; ++tries) {
    if (FILE* file = fopen(o.id_file.c_str(), "rb"); file != nullptr) {
      const bool complete = fread(&id, sizeof id, 1, file) == 1;
      fclose(file);
      if (complete) {
        return id;
      }
    }
    usleep(100'000);
  }
  throw Failure("no unique id in " + o.id_file);
}

int run_rank(int rank, const Options& o, int id_in, const std::vector<int>& id_out) {
  try {
    set_environment(rank, o);
    const ncclUniqueId id = exchange_id(rank, o, id_in, id_out);
    const auto start = std::chrono::steady_clock::now();
    ncclComm_t comm = nullptr;
    CHECK(ncclCommInitRank(&comm, o.ranks, id, rank));
    printf("rank %d: communicator ready after %.1f ms\n", rank, milliseconds_since(start));
    if (!o.init_only && !run_typed(rank, o, comm)) {
      return o.lose_rank >= 0 ? 0 : 1;
    }
    CHECK(ncclCommDestroy(comm));
    printf("rank %d: done\n", rank);
    return 0;
  } catch (const Failure& failure) {
    fprintf(stderr, "rank %d: %s\n", rank, failure.what());
    return 1;
  }
}

Options parse(const std::vector<std::string>& words) {
  Options o;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    auto next = [&] {
      if (i + 1 == words.size()) {
        throw Failure(word + " wants a value");
      }
      return words[++i];
    };
    if (word == "--ranks") {
      o.ranks = std::stoi(next());
    } else if (word == "--hosts") {
      o.hosts = std::stoi(next());
    } else if (word == "--iters") {
      o.iters = std::stoi(next());
    } else if (word == "--count") {
      o.count = std::stoull(next());
    } else if (word == "--op") {
      o.op = next();
    } else if (word == "--type") {
      o.type = next();
    } else if (word == "--red") {
      o.red = next();
    } else if (word == "--init-only") {
      o.init_only = true;
    } else if (word == "--in-place") {
      o.in_place = true;
    } else if (word == "--real") {
      std::istringstream list(next());
      for (std::string rank; std::getline(list, rank, ',');) {
        o.real.push_back(std::stoi(rank));
      }
    } else if (word == "--id-file") {
      o.id_file = next();
    } else if (word == "--rank-env") {
      o.rank_env.push_back(next());
    } else if (word == "--netns") {
      o.netns = next();
    } else if (word == "--lose-rank") {
      o.lose_rank = std::stoi(next());
    } else {
      throw Failure("unknown option " + word);
    }
  }
  if (o.real.empty()) {
    for (int rank = 0; rank < o.ranks; ++rank) {
      o.real.push_back(rank);
    }
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  Options o;
  try {
    o = parse({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fprintf(stderr, "collective_test: %s\n", error.what());
    return 2;
  }
  std::vector<int> in;
  std::vector<int> out;
  for (const int rank : o.real) {
    int ends[2] = {-1, -1};
    if (rank != 0) {
      if (pipe(ends) != 0) {
        return 1;
      }
      out.push_back(ends[1]);
    }
    in.push_back(ends[0]);
  }
  std::vector<pid_t> processes;
  for (std::size_t i = 0; i < o.real.size(); ++i) {
    const pid_t process = fork();
    if (process == 0) {
      const int status = run_rank(o.real[i], o, in[i], out);
      fflush(stdout);
      _exit(status);
    }
    processes.push_back(process);
  }
  int failed = 0;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    int status = 0;
    waitpid(processes[i], &status, 0);
    const int expected = o.real[i] == o.lose_rank ? 77 : 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected) {
      ++failed;
    }
    if (WIFSIGNALED(status)) {
      fprintf(stderr, "rank %d died of signal %d\n", o.real[i], WTERMSIG(status));
    }
  }
  printf("%zu of %d ranks: %s\n", o.real.size(), o.ranks, failed != 0 ? "FAILED" : "passed");
  return failed != 0 ? 1 : 0;
}
