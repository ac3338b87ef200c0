#include "nccl-glue/announce/session.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "nccl-glue/announce/intercept.hpp"

namespace nbx::nccl::announce {
namespace {

struct Group {
  int depth = 0;
  std::vector<std::byte> held;
  std::vector<std::uint64_t> births;
};

thread_local Group group;
thread_local std::uint64_t birth_on_thread = 0;
thread_local std::string refusal;

Session* current = nullptr;

}  // namespace

void report(const std::string& text) {
  std::string block = "neuronabox: ";
  for (const char c : text) {
    block += c;
    if (c == '\n') {
      block += "neuronabox: ";
    }
  }
  block += '\n';
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, block.data(), block.size());
}

Session& Session::instance() {
  static std::once_flag once;
  static std::mutex creating;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { current = nullptr; }); });
  const std::lock_guard lock(creating);
  if (current == nullptr) {
    current = new Session;  // never destroyed: NCCL's threads call until the process ends; a forked child has its own
  }
  return *current;
}

Session::Session() {
  Result<Settings> settings = settings_from_environment();
  if (settings) {
    settings_ = *std::move(settings);
  } else {
    settings_.host = "?";
    settings_error_ = settings.error().message;
  }
}

const char* Session::last_error() const {
  const std::string& text = failed() ? failure_ : refusal;
  return text.empty() ? nullptr : text.c_str();
}

ncclResult_t Session::refuse(ncclResult_t result, const std::string& why) const {
  refusal = why;
  report(why);
  return result;
}

Result<bool> Session::connect() {
  const std::lock_guard lock(mutex_);
  if (!settings_error_.empty()) {
    return Error{settings_error_};
  }
  if (connection_) {
    return true;
  }
  int version = 0;
  pass_on<ncclGetVersion>("ncclGetVersion", &version);
  Result<std::shared_ptr<Connection>> connection =
      Connection::open(settings_, Hello{.nccl_version = static_cast<std::uint32_t>(version),
                                        .pid = getpid(),
                                        .inflate = settings_.inflate ? 1U : 0U,
                                        .variables = nccl_variables()});
  if (!connection) {
    return connection.error();
  }
  connection_ = *std::move(connection);
  connection_->listen([this](bool failure, const std::string& why) { ended(failure, why); });
  return true;
}

Result<Communicator> Session::place(std::int32_t ranks, std::int32_t rank) {
  const std::lock_guard lock(mutex_);
  if (world_ == 0) {
    world_ = ranks;
  }
  Communicator communicator{
      .ranks = ranks, .rank = rank, .program_ranks = ranks, .program_rank = rank, .whole = ranks == world_};
  if (!settings_.inflate || !communicator.whole) {
    return communicator;
  }
  if (settings_.ranks < ranks) {
    return Error{"NBX_RANKS=" + std::to_string(settings_.ranks) + " is less than the " + std::to_string(ranks) +
                 " ranks of the program"};
  }
  const std::vector<std::int32_t>& map = settings_.rank_map;
  const bool fits = map.empty() || (map.size() == static_cast<std::size_t>(ranks) &&
                                    std::ranges::all_of(map, [&](std::int32_t r) { return r < settings_.ranks; }));
  if (!fits) {
    return Error{"NBX_RANK_MAP needs one rank below NBX_RANKS for each of the " + std::to_string(ranks) +
                 " ranks of the program"};
  }
  communicator.ranks = settings_.ranks;
  communicator.rank = world_rank(communicator, rank);
  return communicator;
}

std::int32_t Session::world_rank(const Communicator& communicator, std::int32_t rank) const {
  const bool mapped =
      communicator.inflated() && rank >= 0 && static_cast<std::size_t>(rank) < settings_.rank_map.size();
  return mapped ? settings_.rank_map[static_cast<std::size_t>(rank)] : rank;
}

std::optional<double> Session::factor(const Communicator& communicator, ncclRedOp_t op) const {
  constexpr auto sum = static_cast<ncclRedOp_t>(RedOp::sum);
  constexpr auto average = static_cast<ncclRedOp_t>(RedOp::avg);
  if (communicator.inflated() && op == average) {
    return 1.0 / communicator.program_ranks;
  }
  if (settings_.mirror && communicator.whole && (op == sum || op == average)) {
    return (op == sum ? communicator.ranks : 1.0) / settings_.real_ranks;
  }
  return std::nullopt;
}

std::uint64_t Session::expect(ncclComm_t* handle, Communicator communicator) {
  *handle = nullptr;
  const std::lock_guard lock(mutex_);
  communicator.id = ++last_id_;
  birth_on_thread = communicator.id;
  births_.emplace(communicator.id, Birth{handle, communicator});
  return communicator.id;
}

void Session::made(std::uint64_t id, ncclResult_t result) {
  if (group.depth > 0) {
    group.births.push_back(id);
    return;
  }
  birth_on_thread = 0;
  const std::lock_guard lock(mutex_);
  const auto birth = births_.find(id);
  const bool there = birth != births_.end() && *birth->second.handle != nullptr;
  if (there && (result == ncclSuccess || result == ncclInProgress)) {
    finish(birth->second);
  } else if (birth == births_.end() || result == ncclInProgress) {
    return;
  }
  births_.erase(birth);
}

/// NCCL has made the communicator.
void Session::finish(Birth& birth) {
  Communicator& communicator = birth.communicator;
  if (communicator.ranks == 0) {
    pass_on<ncclCommCount>("ncclCommCount", *birth.handle, &communicator.ranks);
    pass_on<ncclCommUserRank>("ncclCommUserRank", *birth.handle, &communicator.rank);
    communicator.program_ranks = communicator.ranks;
    communicator.program_rank = communicator.rank;
  }
  if (connection_) {
    connection_->send(encode(Kind::comm_ready, CommRef{communicator.id}));
  }
  communicators_[*birth.handle] = std::move(communicator);
}

std::optional<Communicator> Session::find(ncclComm_t comm) {
  const std::lock_guard lock(mutex_);
  // A communicator that is made in the background (non-blocking) has its handle some time later.
  for (auto birth = births_.begin(); birth != births_.end(); ++birth) {
    if (comm != nullptr && *birth->second.handle == comm) {
      finish(birth->second);
      births_.erase(birth);
      break;
    }
  }
  const auto found = communicators_.find(comm);
  return found == communicators_.end() ? std::nullopt : std::optional(found->second);
}

void Session::forget(ncclComm_t comm) {
  const std::lock_guard lock(mutex_);
  const auto found = communicators_.find(comm);
  if (found != communicators_.end()) {
    if (connection_) {
      connection_->send(encode(Kind::comm_destroy, CommRef{found->second.id}));
    }
    communicators_.erase(found);
  }
}

void Session::operation(ncclComm_t comm, OperationCall call, const Described& described) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = communicators_.find(comm);
    if (found == communicators_.end()) {
      return;
    }
    Communicator& communicator = found->second;
    call.comm = communicator.id;
    call.sequence = communicator.operations++;
    if (call.collective <= Collective::all_reduce) {
      const std::uint64_t sequence = communicator.collectives++;
      if (profiling_ && communicator.ranks > 1) {
        communicator.undecided.push_back({sequence, described});
      }
    }
  }
  const std::vector<std::byte> record = encode(Kind::operation, call);
  group.held.insert(group.held.end(), record.begin(), record.end());
  if (group.depth == 0) {
    close_group();
  }
}

void Session::close_group() {
  const std::vector<std::byte> end = encode(Kind::group_end, CommRef{});
  group.held.insert(group.held.end(), end.begin(), end.end());
  send(std::exchange(group.held, {}));
}

void Session::group_start() { group.depth++; }

bool Session::group_end() {
  if (group.depth > 0) {
    group.depth--;
  }
  if (group.depth > 0) {
    return false;
  }
  if (!group.held.empty()) {
    close_group();
  }
  return true;
}

void Session::group_ended(ncclResult_t result) {
  for (const std::uint64_t id : std::exchange(group.births, {})) {
    made(id, result);
  }
}

void Session::send(const std::vector<std::byte>& record) const {
  std::shared_ptr<Connection> connection;
  {
    const std::lock_guard lock(mutex_);
    connection = connection_;
  }
  if (connection) {
    connection->send(record);
  }
}

std::uint64_t Session::profile_birth() {
  const std::lock_guard lock(mutex_);
  profiling_ = true;
  const auto birth = births_.find(birth_on_thread);
  if (birth == births_.end()) {
    return 0;
  }
  birth->second.communicator.profiled = true;
  return birth->first;
}

Communicator* Session::matching(std::uint64_t id, std::int32_t ranks, std::int32_t rank, const Described& event) {
  for (auto& [handle, communicator] : communicators_) {
    const bool same = id == 0 ? !communicator.profiled && communicator.ranks == ranks && communicator.rank == rank
                              : communicator.id == id;
    const auto is_event = [&](const Undecided& u) { return u.call == event; };
    if (same && std::ranges::any_of(communicator.undecided, is_event)) {
      return &communicator;
    }
  }
  return nullptr;
}

void Session::decide(std::uint64_t& id, std::int32_t ranks, std::int32_t rank, const Described& event,
                     OperationDecision decision) {
  {
    const std::lock_guard lock(mutex_);
    Communicator* communicator = matching(id, ranks, rank, event);
    if (communicator == nullptr) {
      return;
    }
    communicator->profiled = true;
    id = communicator->id;
    const auto call = std::ranges::find(communicator->undecided, event, &Undecided::call);
    decision.comm = id;
    decision.sequence = call->sequence;
    communicator->undecided.erase(call);
  }
  send(encode(Kind::decision, decision));
}

void Session::ended(bool failure, const std::string& why) {
  const std::lock_guard lock(mutex_);
  connection_.reset();
  if (communicators_.empty() && births_.empty()) {
    if (failure) {
      report(why);
    }
    return;  // nothing hangs on it; the next communicator connects again
  }
  failure_ = why;
  failed_.store(true, std::memory_order_release);
  report("the emulation has failed; the communicators of process " + std::to_string(getpid()) + " are aborted\n" + why);
  abort_all();
}

/// Inside a group, ncclCommAbort raises the abort flags at once and leaves the freeing to the end of the group. This
/// group never ends: other threads may be inside NCCL with these communicators, and the program frees them itself when
/// it answers the error.
void Session::abort_all() {
  pass_on<ncclGroupStart>("ncclGroupStart");
  for (const auto& [handle, communicator] : communicators_) {
    pass_on<ncclCommAbort>("ncclCommAbort", handle);
  }
  for (const auto& [id, birth] : births_) {
    if (*birth.handle != nullptr) {
      pass_on<ncclCommAbort>("ncclCommAbort", *birth.handle);
    }
  }
}

}  // namespace nbx::nccl::announce
