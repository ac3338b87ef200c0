// Runs collectives over N ranks, one process each, and checks every element against a value computed here.
//
//   collective_test --ranks N [--hosts H] [--op allreduce] [--type f32] [--red sum] [--count N] [--iters N]
//                   [--in-place] [--init-only] [--real R,R] [--id-file PATH] [--rank-env NAME=TEXT] [--netns PREFIX]
//                   [--lose-rank R] [--root R] [--pattern] [--ghost-file PATH] [--mirror]
//
// --op: allreduce, allgather, reducescatter, broadcast, reduce, sendrecv (around the ring) or alltoall.
// --type: f16, bf16, f32, f64, i32, i64 or u8. --red: sum, prod, max, min, avg, or premul: a reduction of the program's
//   own, a sum of products. These three and --count may be lists with commas: every combination is run.
// --real: only these ranks are started, by their numbers; the others exist elsewhere. They contribute nothing to
//   reductions and send zeros, so expected values are those over the real ranks; an average divides by N.
// --root: of broadcast and reduce, else 0.
// --pattern: every rank has the numbers that ghosts with `contribution: pattern` and `filling: pattern` have, so that
//   expected values are those over all ranks, real or not. With --iters 1.
// --ghost-file: what ghosts send is this file, repeated.
// --mirror: ghosts count as copies of the real ranks: a sum is N / R times that over the R real ranks.
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
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
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
  std::vector<std::size_t> counts{1U << 20U};
  std::vector<std::string> ops{"allreduce"};
  std::vector<std::string> types{"f32"};
  std::vector<std::string> reds{"sum"};
  bool init_only = false;
  bool in_place = false;
  std::vector<int> real;
  std::string id_file;
  std::vector<std::string> rank_env;
  std::string netns;
  int lose_rank = -1;
  int root = 0;
  bool pattern = false;
  bool mirror = false;
  std::string ghost_file;  // its content

  [[nodiscard]] bool is_real(int rank) const { return std::find(real.begin(), real.end(), rank) != real.end(); }
};

/// What is run now.
struct Case {
  std::string op;
  std::string type;
  std::string red;
  std::size_t count = 0;
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
  if (name == "prod") {
    return ncclProd;
  }
  if (name == "max") {
    return ncclMax;
  }
  if (name == "min") {
    return ncclMin;
  }
  return name == "avg" ? ncclAvg : ncclSum;
}

bool reduces(const std::string& op) { return op == "allreduce" || op == "reducescatter" || op == "reduce"; }

/// The upper half of a float, rounded to nearest, ties to even.
struct Bf16 {
  std::uint16_t bits = 0;
  Bf16() = default;
  explicit Bf16(double value) {
    const auto word = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    bits = static_cast<std::uint16_t>((word + 0x7fff + ((word >> 16U) & 1U)) >> 16U);
  }
  explicit operator double() const { return std::bit_cast<float>(std::uint32_t{bits} << 16U); }
};

template <class T>
T element(double value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(value));  // integers wrap
  } else {
    return static_cast<T>(value);
  }
}

/// Half a unit in the last place of 1; 0 for integers.
template <class T>
constexpr double unit_roundoff() {
  if (std::is_integral_v<T>) {
    return 0;
  }
  return sizeof(T) == 8 ? 0x1p-53 : sizeof(T) == 4 ? 0x1p-24 : std::is_same_v<T, Bf16> ? 0x1p-8 : 0x1p-11;
}

// One rank's part of a test with elements of type T.
template <class T>
class Rank {
 public:
  Rank(int rank, const Options& options, const Case& now, ncclDataType_t type, ncclComm_t comm)
      : rank_(rank), n_(options.ranks), o_(options), c_(now), type_(type), red_(reduction(now.red)), comm_(comm) {
    const auto n = static_cast<std::size_t>(n_);
    send_count_ = c_.op == "reducescatter" || c_.op == "alltoall" ? c_.count * n : c_.count;
    receive_count_ = c_.op == "allgather" || c_.op == "alltoall" ? c_.count * n : c_.count;
    if (c_.red == "premul") {
      T factor = element<T>(premul_factor);
      CHECK(ncclRedOpCreatePreMulSum(&red_, &factor, type_, ncclScalarHostImmediate, comm_));
    }
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CHECK(cudaMalloc(reinterpret_cast<void**>(&send_), send_count_ * sizeof(T)));
    receive_ = send_;
    if (!(o_.in_place && c_.op == "allreduce")) {
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
        host[i] = element<T>(value(rank_, i + shift));
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
      printf("rank %d: %s %s %s count %zu iter %d: correct, %.1f ms\n", rank_, c_.op.c_str(), c_.type.c_str(),
             c_.red.c_str(), c_.count, iteration, took);
    }
    CHECK(cudaFree(send_));
    if (receive_ != send_) {
      CHECK(cudaFree(receive_));
    }
    CHECK(cudaStreamDestroy(stream_));
    if (c_.red == "premul") {
      CHECK(ncclRedOpDestroy(red_, comm_));
    }
    return true;
  }

 private:
  static constexpr double premul_factor = std::is_integral_v<T> ? 3 : 0.5;

  // Small whole numbers, so that every order of summing gives the same result; smaller ones for products.
  [[nodiscard]] double value(int rank, std::size_t i) const {
    const auto r = static_cast<std::size_t>(rank);
    if (o_.pattern) {  // by place in a rank's part
      return static_cast<double>((i % c_.count + 31 * r) % 97) + 1;
    }
    if (c_.red == "prod") {
      const double sign = std::is_unsigned_v<T> || i % 5 != 0 ? 1 : -1;
      return sign * static_cast<double>(1 + (i + r) % 2);
    }
    constexpr double lowest = std::is_unsigned_v<T> ? 0 : -11;
    return static_cast<double>((i * 7 + r * 13) % 61) + lowest;
  }

  [[nodiscard]] double received_from(int rank, std::size_t i) const {
    if (o_.is_real(rank) || o_.pattern) {
      return value(rank, i);
    }
    if (o_.ghost_file.empty()) {
      return 0;
    }
    T sent{};
    std::array<char, sizeof(T)> bytes{};
    for (std::size_t k = 0; k < sizeof(T); ++k) {
      bytes[k] = o_.ghost_file[(i % c_.count * sizeof(T) + k) % o_.ghost_file.size()];
    }
    std::memcpy(&sent, bytes.data(), sizeof sent);
    return static_cast<double>(sent);
  }

  [[nodiscard]] double reduced(std::size_t i) const {
    std::vector<int> ranks = o_.real;
    if (o_.pattern) {
      ranks.resize(static_cast<std::size_t>(n_));
      std::iota(ranks.begin(), ranks.end(), 0);
    }
    double result = value(ranks.front(), i);
    for (std::size_t k = 1; k < ranks.size(); ++k) {
      const double v = value(ranks[k], i);
      switch (c_.red == "premul" ? ncclSum : red_) {
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
    const double copies = o_.mirror ? static_cast<double>(n_) / static_cast<double>(o_.real.size()) : 1;
    if (c_.red == "premul") {
      return result * premul_factor;
    }
    if (red_ == ncclSum || red_ == ncclAvg) {
      result *= copies;
    }
    return red_ == ncclAvg ? result / n_ : result;
  }

  void launch() {
    if (c_.op == "allreduce") {
      CHECK(ncclAllReduce(send_, receive_, c_.count, type_, red_, comm_, stream_));
    } else if (c_.op == "allgather") {
      CHECK(ncclAllGather(send_, receive_, c_.count, type_, comm_, stream_));
    } else if (c_.op == "reducescatter") {
      CHECK(ncclReduceScatter(send_, receive_, c_.count, type_, red_, comm_, stream_));
    } else if (c_.op == "broadcast") {
      CHECK(ncclBroadcast(send_, receive_, c_.count, type_, o_.root, comm_, stream_));
    } else if (c_.op == "reduce") {
      CHECK(ncclReduce(send_, receive_, c_.count, type_, red_, o_.root, comm_, stream_));
    } else if (c_.op == "sendrecv") {
      CHECK(ncclGroupStart());
      CHECK(ncclSend(send_, c_.count, type_, (rank_ + 1) % n_, comm_, stream_));
      CHECK(ncclRecv(receive_, c_.count, type_, (rank_ + n_ - 1) % n_, comm_, stream_));
      CHECK(ncclGroupEnd());
    } else if (c_.op == "alltoall") {
      CHECK(ncclGroupStart());
      for (int peer = 0; peer < n_; ++peer) {
        const std::size_t at = static_cast<std::size_t>(peer) * c_.count;
        CHECK(ncclSend(send_ + at, c_.count, type_, peer, comm_, stream_));
        CHECK(ncclRecv(receive_ + at, c_.count, type_, peer, comm_, stream_));
      }
      CHECK(ncclGroupEnd());
    } else {
      throw Failure("unknown operation " + c_.op);
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
    if (c_.op == "allreduce" || c_.op == "reduce") {
      return reduced(i + shift);
    }
    if (c_.op == "allgather") {
      return received_from(static_cast<int>(i / c_.count), i % c_.count + shift);
    }
    if (c_.op == "reducescatter") {
      return reduced(static_cast<std::size_t>(rank_) * c_.count + i + shift);
    }
    if (c_.op == "alltoall") {
      return received_from(static_cast<int>(i / c_.count),
                           static_cast<std::size_t>(rank_) * c_.count + i % c_.count + shift);
    }
    return received_from(c_.op == "broadcast" ? o_.root : (rank_ + n_ - 1) % n_, i + shift);
  }

  void compare(const std::vector<T>& back, std::size_t shift) const {
    if (c_.op == "reduce" && rank_ != o_.root) {
      return;
    }
    // An average of floating-point numbers multiplies by 1/n first: its factor, products and sums are rounded.
    constexpr double largest = 128;
    const double slack = red_ == ncclAvg || o_.mirror ? 3 * largest * unit_roundoff<T>() : 0;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < back.size(); ++i) {
      const double want = expected(i, shift);
      if (std::fabs(static_cast<double>(back[i]) - static_cast<double>(element<T>(want))) > slack && wrong++ < 3) {
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
  const Case& c_;
  const ncclDataType_t type_;
  ncclRedOp_t red_;
  const ncclComm_t comm_;
  std::size_t send_count_ = 0;
  std::size_t receive_count_ = 0;
  cudaStream_t stream_ = nullptr;
  T* send_ = nullptr;
  T* receive_ = nullptr;
};

bool run_case(int rank, const Options& o, const Case& now, ncclComm_t comm) {
  if (now.type == "f16") {
    return Rank<_Float16>(rank, o, now, ncclFloat16, comm).run();
  }
  if (now.type == "bf16") {
    return Rank<Bf16>(rank, o, now, ncclBfloat16, comm).run();
  }
  if (now.type == "f32") {
    return Rank<float>(rank, o, now, ncclFloat32, comm).run();
  }
  if (now.type == "f64") {
    return Rank<double>(rank, o, now, ncclFloat64, comm).run();
  }
  if (now.type == "i32") {
    return Rank<std::int32_t>(rank, o, now, ncclInt32, comm).run();
  }
  if (now.type == "i64") {
    return Rank<std::int64_t>(rank, o, now, ncclInt64, comm).run();
  }
  if (now.type == "u8") {
    return Rank<std::uint8_t>(rank, o, now, ncclUint8, comm).run();
  }
  throw Failure("unknown type " + now.type);
}

/// False: the communicator had to be aborted.
bool run_all(int rank, const Options& o, ncclComm_t comm) {
  for (const std::string& op : o.ops) {
    for (const std::string& type : o.types) {
      for (const std::string& red : reduces(op) ? o.reds : std::vector<std::string>{"sum"}) {
        for (const std::size_t count : o.counts) {
          if (!run_case(rank, o, {op, type, red, count}, comm)) {
            return false;
          }
        }
      }
    }
  }
  return true;
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
    if (!o.init_only && !run_all(rank, o, comm)) {
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

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream list(text);
  for (std::string word; std::getline(list, word, ',');) {
    words.push_back(word);
  }
  return words;
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
      o.counts.clear();
      for (const std::string& count : split(next())) {
        o.counts.push_back(std::stoull(count));
      }
    } else if (word == "--op") {
      o.ops = split(next());
    } else if (word == "--type") {
      o.types = split(next());
    } else if (word == "--red") {
      o.reds = split(next());
    } else if (word == "--init-only") {
      o.init_only = true;
    } else if (word == "--in-place") {
      o.in_place = true;
    } else if (word == "--real") {
      for (const std::string& rank : split(next())) {
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
    } else if (word == "--root") {
      o.root = std::stoi(next());
    } else if (word == "--pattern") {
      o.pattern = true;
    } else if (word == "--mirror") {
      o.mirror = true;
    } else if (word == "--ghost-file") {
      std::ifstream file(next(), std::ios::binary);
      o.ghost_file.assign(std::istreambuf_iterator<char>(file), {});
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
