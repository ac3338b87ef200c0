// NCCL's profiler interface, versions 4 to 6: tells the ghosts how NCCL runs each collective. NCCL (2.27 to 2.29)
// starts the event of a collective when its kernel is launched, on the host and before it hands the transfers to the
// proxy thread, so that a decision leaves before the first byte of its data does. Events come in the order in which
// NCCL runs the collectives of a group, which is by size and not that of the calls: the call is found by its buffers.
#include <cstdint>

#include "nccl-glue/announce/names.hpp"
#include "nccl-glue/announce/session.hpp"

namespace nbx::nccl::announce {
namespace {

constexpr int collective_event = 2;  // ncclProfileColl

/// One per communicator of NCCL's.
struct Context {
  std::uint64_t communicator = 0;  // ours; 0: not found yet
  std::int32_t ranks = 0;
  std::int32_t rank = 0;
};

/// The start of an event descriptor, and what follows it in that of a collective. Version 4 has a type of one byte with
/// seven of padding, later ones of eight bytes: the low byte is enough for the one kind of event asked for.
struct Event {
  std::uint8_t type;
  void* parent;
  int rank;
  struct {
    std::uint64_t sequence;
    const char* function;
    const void* send;
    void* receive;
    std::size_t count;
    int root;
    const char* type;
    std::uint8_t channels;
    std::uint8_t warps;
    const char* algorithm;
    const char* protocol;
  } collective;
};
static_assert(offsetof(Event, parent) == 8 && offsetof(Event, collective) == 24);

ncclResult_t init(void** context, int* mask, std::int32_t ranks, std::int32_t rank) {
  Session& session = Session::instance();
  *mask = session.enabled() ? collective_event : 0;
  *context = new Context{session.profile_birth(), ranks, rank};
  return ncclSuccess;
}

ncclResult_t init_v5(void** context, std::uint64_t /*comm*/, int* mask, const char* /*name*/, int /*nodes*/, int ranks,
                     int rank, void (* /*logger*/)()) {
  return init(context, mask, ranks, rank);
}

ncclResult_t init_v4(void** context, int* mask, const char* /*name*/, std::uint64_t /*comm*/, int /*nodes*/, int ranks,
                     int rank, void (* /*logger*/)()) {
  return init(context, mask, ranks, rank);
}

ncclResult_t start_event(void* context, void** handle, const Event* event) {
  *handle = nullptr;  // NCCL then does not tell the end of the event
  if (context == nullptr || event->type != collective_event) {
    return ncclSuccess;
  }
  const auto& collective = event->collective;
  const auto function = collective_named(collective.function);
  const auto algorithm = algorithm_named(collective.algorithm);
  const auto protocol = protocol_named(collective.protocol);
  if (!function || !algorithm || !protocol) {
    report("NCCL runs " + std::string(collective.function) + " with " + collective.algorithm + " and " +
           collective.protocol + ", which ghosts cannot play");
    return ncclSuccess;
  }
  auto& known = *static_cast<Context*>(context);
  Session::instance().decide(
      known.communicator, known.ranks, known.rank,
      Described{*function, collective.count * type_size(type_named(collective.type)), collective.send,
                collective.receive},
      OperationDecision{.algorithm = *algorithm, .protocol = *protocol, .channels = collective.channels});
  return ncclSuccess;
}

ncclResult_t stop_event(void* /*handle*/) { return ncclSuccess; }

ncclResult_t record_state(void* /*handle*/, int /*state*/, void* /*arguments*/) { return ncclSuccess; }

ncclResult_t finalize(void* context) {
  delete static_cast<Context*>(context);
  return ncclSuccess;
}

template <class Init>
struct Profiler {
  const char* name;
  Init* init;
  decltype(&start_event) start;
  decltype(&stop_event) stop;
  decltype(&record_state) record;
  decltype(&finalize) end;
};

}  // namespace

extern "C" {

// NCCL reads the tables through pointers to non-const, and writes none of them.
extern const Profiler<decltype(init_v5)> ncclProfiler_v6;
extern const Profiler<decltype(init_v5)> ncclProfiler_v5;
extern const Profiler<decltype(init_v4)> ncclProfiler_v4;

const Profiler<decltype(init_v5)> ncclProfiler_v6{"neuronabox", init_v5,      start_event,
                                                  stop_event,   record_state, finalize};
const Profiler<decltype(init_v5)> ncclProfiler_v5{"neuronabox", init_v5,      start_event,
                                                  stop_event,   record_state, finalize};
const Profiler<decltype(init_v4)> ncclProfiler_v4{"neuronabox", init_v4,      start_event,
                                                  stop_event,   record_state, finalize};

}  // extern "C"

}  // namespace nbx::nccl::announce
