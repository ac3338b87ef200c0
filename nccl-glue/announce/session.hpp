// What this process has told the ghosts: its communicators, its operations in order, and whether the emulation has
// failed. One per process, found by the intercepted functions and by the profiler. Records of a group are held until
// its outermost end, so that the groups of several threads do not mix on the one connection.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "nccl-glue/announce/connection.hpp"
#include "nccl-glue/announce/library.hpp"
#include "nccl-glue/announce/nccl_api.hpp"

namespace nbx::nccl::announce {

/// A collective as both the caller and NCCL's profiler describe it.
struct Described {
  Collective collective{};
  std::uint64_t bytes = 0;
  const void* send = nullptr;
  const void* receive = nullptr;

  bool operator==(const Described&) const = default;
};

struct Undecided {
  std::uint64_t sequence = 0;
  Described call;
};

struct Communicator {
  std::uint64_t id = 0;
  std::int32_t ranks = 0;  // as NCCL knows it
  std::int32_t rank = 0;
  std::int32_t program_ranks = 0;  // as the program knows it: fewer when inflated
  std::int32_t program_rank = 0;
  std::uint64_t operations = 0;  // numbers given so far
  std::uint64_t collectives = 0;
  bool whole = false;     // of all the program's ranks
  bool profiled = false;  // a profiler context was found to be its
  std::deque<Undecided> undecided = {};

  [[nodiscard]] bool inflated() const { return program_ranks != ranks; }
};

/// A communicator in the making: known by where NCCL will put its handle.
struct Birth {
  ncclComm_t* handle = nullptr;
  Communicator communicator;  // without ranks when it is a split: NCCL knows them afterwards
};

class Session {
 public:
  static Session& instance();

  /// Whether there is anything to say: NBX_ANNOUNCE is set and the call is not one of NCCL's own.
  [[nodiscard]] bool active() const { return enabled() && !inside_nccl; }
  [[nodiscard]] bool enabled() const { return !settings_.host.empty(); }
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// The text for ncclGetLastError; null: NCCL's own.
  [[nodiscard]] const char* last_error() const;
  /// Says why the program gets an error, and answers it.
  [[nodiscard]] ncclResult_t refuse(ncclResult_t result, const std::string& why) const;

  /// Connects unless it did: to ghosts that can play this NCCL.
  [[nodiscard]] Result<bool> connect();
  /// The communicator that NCCL is asked for when the program asks for this one.
  [[nodiscard]] Result<Communicator> place(std::int32_t ranks, std::int32_t rank);
  /// The rank of the communicator that the program calls `rank`.
  [[nodiscard]] std::int32_t world_rank(const Communicator& communicator, std::int32_t rank) const;
  /// What a reduction multiplies each contribution by, instead of NCCL's own sum or average.
  [[nodiscard]] std::optional<double> factor(const Communicator& communicator, ncclRedOp_t op) const;

  /// Numbers a communicator whose making begins. The handle is empty until NCCL fills it.
  std::uint64_t expect(ncclComm_t* handle, Communicator communicator = {});
  /// NCCL's call returned; inside a group the group's end counts.
  void made(std::uint64_t id, ncclResult_t result);
  [[nodiscard]] std::optional<Communicator> find(ncclComm_t comm);
  void forget(ncclComm_t comm);

  void operation(ncclComm_t comm, OperationCall call, const Described& described);
  void group_start();
  /// Before NCCL's: what the group held is sent. True for the outermost.
  bool group_end();
  /// After NCCL's: the communicators of the group are made.
  void group_ended(ncclResult_t result);
  void close_group();
  void send(const std::vector<std::byte>& record) const;

  /// A communicator gets a profiler context. Answers which, when this thread is in its making; else 0.
  [[nodiscard]] std::uint64_t profile_birth();
  /// Tells how NCCL runs a collective. `id` is found by the call when it is 0.
  void decide(std::uint64_t& id, std::int32_t ranks, std::int32_t rank, const Described& event,
              OperationDecision decision);

 private:
  Session();
  void finish(Birth& birth);
  void ended(bool failure, const std::string& why);
  void abort_all();
  [[nodiscard]] Communicator* matching(std::uint64_t id, std::int32_t ranks, std::int32_t rank, const Described& event);

  Settings settings_;
  std::string settings_error_;
  std::string failure_;  // written before failed_, then only read
  std::atomic<bool> failed_ = false;

  mutable std::mutex mutex_;  // of everything below
  std::shared_ptr<Connection> connection_;
  std::uint64_t last_id_ = 0;
  bool profiling_ = false;
  std::int32_t world_ = 0;  // the program's ranks in its first communicator
  std::map<ncclComm_t, Communicator> communicators_;
  std::map<std::uint64_t, Birth> births_;
};

/// One block on standard error.
void report(const std::string& text);

}  // namespace nbx::nccl::announce
