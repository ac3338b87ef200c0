// Communicators: each is announced before NCCL makes it, so that the ghosts are there when NCCL looks for its peers.
#include <dlfcn.h>

#include <algorithm>

#include "nccl-glue/announce/intercept.hpp"
#include "nccl-glue/announce/library.hpp"
#include "nccl-glue/announce/session.hpp"

namespace nbx::nccl::announce {
namespace {

constexpr const char* failed_before = "the emulation has failed before (see above)";

/// Announces a communicator of the program's and has NCCL make it with the ranks of the world.
template <class Make>
ncclResult_t make(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, Make nccl) {
  Session& session = Session::instance();
  if (!session.active() || comm == nullptr) {
    return nccl(ranks, rank);
  }
  if (session.failed()) {
    return session.refuse(ncclRemoteError, failed_before);
  }
  const Result<Communicator> place = session.place(ranks, rank);
  if (!place) {
    return session.refuse(ncclInvalidUsage, place.error().message);
  }
  if (const Result<bool> connected = session.connect(); !connected) {
    return session.refuse(ncclSystemError, connected.error().message);
  }
  CommInit record{.comm = session.expect(comm, *place), .ranks = place->ranks, .rank = place->rank};
  std::ranges::copy(std::as_bytes(std::span(id.internal)), record.id.begin());
  session.send(encode(Kind::comm_init, record));
  const ncclResult_t result = nccl(place->ranks, place->rank);
  session.made(record.comm, result);
  return session.failed() ? ncclRemoteError : result;
}

/// Announces a child with `record(child's number)` and has NCCL make it.
template <class Announce, class Make>
ncclResult_t make_child(const char* function, ncclComm_t comm, ncclComm_t* child, Announce record, Make nccl) {
  Session& session = Session::instance();
  const std::optional<Communicator> parent = session.active() ? session.find(comm) : std::nullopt;
  if (!parent || child == nullptr) {
    return nccl();
  }
  if (session.failed()) {
    return session.refuse(ncclRemoteError, failed_before);
  }
  if (parent->inflated()) {
    return session.refuse(ncclInvalidUsage, std::string(function) +
                                                ": an inflated communicator has ranks that the program gives no color; "
                                                "let the program know all ranks (NBX_MODE=full)");
  }
  const std::uint64_t id = session.expect(child);
  session.send(record(*parent, id));
  const ncclResult_t result = nccl();
  session.made(id, result);
  return session.failed() ? ncclRemoteError : result;
}

/// ncclCommDestroy and ncclCommAbort. After a failure the communicator is aborted already, and this frees it.
template <class End>
ncclResult_t end(ncclComm_t comm, ncclResult_t after_failure, End nccl) {
  Session& session = Session::instance();
  if (session.active()) {
    session.forget(comm);
    if (session.failed()) {
      pass_on<ncclCommAbort>("ncclCommAbort", comm);
      return after_failure;
    }
  }
  return nccl();
}

/// Makes a device current, whichever CUDA runtime the program has (often a static one): the driver is shared.
bool use_device(int device) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  const auto function = [driver]<class F>(const char* name, F*& pointer) {
    pointer = driver == nullptr ? nullptr : reinterpret_cast<F*>(dlsym(driver, name));
    return pointer != nullptr;
  };
  int (*retain)(void** context, int device) = nullptr;
  int (*set_current)(void* context) = nullptr;
  void* context = nullptr;
  return function("cuDevicePrimaryCtxRetain", retain) && function("cuCtxSetCurrent", set_current) &&
         retain(&context, device) == 0 && set_current(context) == 0;
}

}  // namespace

extern "C" {

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return make(comm, ranks, id, rank,
              [=](int n, int r) { return pass_on<ncclCommInitRank>("ncclCommInitRank", comm, n, id, r); });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, void* config) {
  return make(comm, ranks, id, rank, [=](int n, int r) {
    return pass_on<ncclCommInitRankConfig>("ncclCommInitRankConfig", comm, n, id, r, config);
  });
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count, ncclUniqueId* ids,
                                      void* config) {
  const auto nccl = [=](int n, int r) {
    return pass_on<ncclCommInitRankScalable>("ncclCommInitRankScalable", comm, n, r, id_count, ids, config);
  };
  if (ids == nullptr || id_count < 1) {
    return nccl(ranks, rank);
  }
  if (Session& session = Session::instance(); id_count > 1 && session.active()) {
    return session.refuse(ncclInvalidUsage,
                          "ncclCommInitRankScalable: ghosts join over one unique id, not " + std::to_string(id_count));
  }
  return make(comm, ranks, ids[0], rank, nccl);
}

/// In full mode all ranks are in this process, so that no ghost has a place. Inflated, it is what NCCL documents: a
/// group of ncclCommInitRank, one for each device.
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  Session& session = Session::instance();
  const Result<Communicator> place = session.active() ? session.place(count, 0) : Communicator{};
  if (place && !place->inflated()) {
    return pass_on<ncclCommInitAll>("ncclCommInitAll", comms, count, devices);
  }
  ncclUniqueId id{};
  if (const ncclResult_t result = pass_on<ncclGetUniqueId>("ncclGetUniqueId", &id); result != ncclSuccess) {
    return result;
  }
  ncclResult_t result = ncclGroupStart();
  for (int i = 0; i < count && result == ncclSuccess; i++) {
    const int device = devices == nullptr ? i : devices[i];
    result = use_device(device) ? ncclCommInitRank(&comms[i], count, id, i)
                                : session.refuse(ncclSystemError, "ncclCommInitAll: cannot make device " +
                                                                      std::to_string(device) + " current");
  }
  const ncclResult_t ended = ncclGroupEnd();
  return result == ncclSuccess ? ended : result;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, void* config) {
  return make_child(
      "ncclCommSplit", comm, child,
      [=](const Communicator& parent, std::uint64_t id) {
        return encode(Kind::comm_split, CommSplit{.parent = parent.id, .comm = id, .color = color, .key = key});
      },
      [=] { return pass_on<ncclCommSplit>("ncclCommSplit", comm, color, key, child, config); });
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* child, void* config,
                            int flags) {
  return make_child(
      "ncclCommShrink", comm, child,
      [=](const Communicator& parent, std::uint64_t id) {
        const CommShrink shrink{.parent = parent.id,
                                .comm = id,
                                .parent_ranks = static_cast<std::uint32_t>(parent.ranks),
                                .flags = static_cast<std::uint32_t>(flags)};
        std::vector<std::byte> body(sizeof shrink + (shrink.parent_ranks + 7) / 8);
        std::memcpy(body.data(), &shrink, sizeof shrink);
        for (const int rank : std::span(excluded, static_cast<std::size_t>(std::max(excluded_count, 0)))) {
          if (rank >= 0 && rank < parent.ranks) {
            body[sizeof shrink + static_cast<std::size_t>(rank / 8)] |= std::byte{1} << rank % 8;
          }
        }
        return encode(Kind::comm_shrink, ConstBytes(body));
      },
      [=] { return pass_on<ncclCommShrink>("ncclCommShrink", comm, excluded, excluded_count, child, config, flags); });
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* child,
                          void* config) {
  if (Session& session = Session::instance(); session.active()) {
    return session.refuse(ncclInvalidUsage, "ncclCommGrow: ghosts cannot join a communicator that grows");
  }
  return pass_on<ncclCommGrow>("ncclCommGrow", comm, ranks, id, rank, child, config);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  Session& session = Session::instance();
  if (session.active() && session.failed()) {
    return ncclRemoteError;
  }
  return pass_on<ncclCommFinalize>("ncclCommFinalize", comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return end(comm, ncclRemoteError, [comm] { return pass_on<ncclCommDestroy>("ncclCommDestroy", comm); });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return end(comm, ncclSuccess, [comm] { return pass_on<ncclCommAbort>("ncclCommAbort", comm); });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  Session& session = Session::instance();
  const std::optional<Communicator> known = session.active() ? session.find(comm) : std::nullopt;
  if (known && count != nullptr) {
    *count = known->program_ranks;
    return ncclSuccess;
  }
  return pass_on<ncclCommCount>("ncclCommCount", comm, count);
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  Session& session = Session::instance();
  const std::optional<Communicator> known = session.active() ? session.find(comm) : std::nullopt;
  if (known && rank != nullptr) {
    *rank = known->program_rank;
    return ncclSuccess;
  }
  return pass_on<ncclCommUserRank>("ncclCommUserRank", comm, rank);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  Session& session = Session::instance();
  if (session.active() && session.failed() && error != nullptr) {
    *error = ncclRemoteError;
    return ncclSuccess;
  }
  return pass_on<ncclCommGetAsyncError>("ncclCommGetAsyncError", comm, error);
}

const char* ncclGetLastError(ncclComm_t comm) {
  Session& session = Session::instance();
  const char* ours = session.active() ? session.last_error() : nullptr;
  return ours != nullptr ? ours : pass_on<ncclGetLastError>("ncclGetLastError", comm);
}

}  // extern "C"

}  // namespace nbx::nccl::announce
