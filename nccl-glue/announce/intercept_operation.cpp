// Operations: each is announced before NCCL runs it, as NCCL is asked for it, that is with the ranks of the world.
#include "nccl-glue/announce/intercept.hpp"
#include "nccl-glue/announce/library.hpp"
#include "nccl-glue/announce/scale.hpp"
#include "nccl-glue/announce/session.hpp"

namespace nbx::nccl::announce {
namespace {

constexpr auto sum = static_cast<ncclRedOp_t>(RedOp::sum);

struct Call {
  const char* function;
  Collective collective{};
  const void* send = nullptr;
  const void* receive = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = 0;
  ncclComm_t comm = nullptr;
  ncclRedOp_t op = sum;
  int root = 0;
  bool grows = false;  // a buffer has a part for every rank
};

/// Types after bfloat16 (the 8-bit floats) are bytes to an operation that does not compute.
bool has_type(const Call& call) { return call.type >= 0 && call.type <= static_cast<int>(DataType::bf16); }

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

/// Why the ghosts cannot take part, or nothing.
std::string obstacle(const Session& session, const Call& call, const Communicator& communicator) {
  if (call.grows && communicator.inflated()) {
    return "its buffers grow with the number of ranks, and the program knows " +
           std::to_string(communicator.program_ranks) + " of " + std::to_string(communicator.ranks) +
           " (NBX_MODE=inflate); use NBX_MODE=full";
  }
  if (!reduces(call.collective)) {
    return {};
  }
  if (!has_type(call)) {
    return "ghosts do not reduce data of type " + std::to_string(call.type);
  }
  if (session.factor(communicator, call.op) && !scalar(static_cast<DataType>(call.type), 1)) {
    return call.op == sum ? "NBX_MIRROR scales the sum, which integers cannot be"
                          : "the average over the real ranks is a product with a fraction, which integers cannot be";
  }
  return {};
}

void announce(Session& session, const Call& call, const Communicator& communicator, ncclRedOp_t op, int root) {
  const bool known = has_type(call);
  const auto type = known ? static_cast<DataType>(call.type) : DataType::u8;
  // A reduction of the program's own is a sum of products: to a ghost, who contributes nothing, a sum.
  const RedOp reduction = op < built_in_reductions ? static_cast<RedOp>(op) : RedOp::sum;
  session.operation(call.comm,
                    OperationCall{.comm = communicator.id,
                                  .count = call.count,
                                  .root = root,
                                  .collective = call.collective,
                                  .type = type,
                                  .op = reduction},
                    Described{call.collective, call.count * type_size(type), call.send, call.receive});
}

/// Announces one call and passes it on as `nccl(op, root)`.
template <class Nccl>
ncclResult_t run(const Call& call, Nccl nccl) {
  Session& session = Session::instance();
  const std::optional<Communicator> communicator = session.active() ? session.find(call.comm) : std::nullopt;
  if (!communicator) {
    return nccl(call.op, call.root);
  }
  if (session.failed()) {
    return ncclRemoteError;
  }
  if (const std::string why = obstacle(session, call, *communicator); !why.empty()) {
    return session.refuse(ncclInvalidUsage, std::string(call.function) + ": " + why);
  }
  const int root = session.world_rank(*communicator, call.root);
  ncclRedOp_t op = call.op;
  const std::optional<double> factor = reduces(call.collective) ? session.factor(*communicator, call.op) : std::nullopt;
  if (factor) {
    auto value = *scalar(static_cast<DataType>(call.type), *factor);
    const ncclResult_t result = pass_on<ncclRedOpCreatePreMulSum>(
        "ncclRedOpCreatePreMulSum", &op, static_cast<void*>(value.data()), call.type, scalar_in_host_memory, call.comm);
    if (result != ncclSuccess) {
      return result;
    }
  }
  const bool message = call.collective == Collective::send || call.collective == Collective::recv;
  if (call.count != 0 || message) {  // NCCL drops a collective of nothing
    announce(session, call, *communicator, op, root);
  }
  const ncclResult_t result = nccl(op, root);
  if (factor) {
    pass_on<ncclRedOpDestroy>("ncclRedOpDestroy", op, call.comm);
  }
  return session.failed() ? ncclRemoteError : result;
}

/// A collective that NCCL runs as a group of messages, in the order in which NCCL makes them.
template <class Messages, class Nccl>
ncclResult_t run_messages(Call call, Messages messages, Nccl nccl) {
  Session& session = Session::instance();
  const std::optional<Communicator> communicator = session.active() ? session.find(call.comm) : std::nullopt;
  if (!communicator) {
    return nccl();
  }
  if (session.failed()) {
    return ncclRemoteError;
  }
  if (const std::string why = obstacle(session, call, *communicator); !why.empty()) {
    return session.refuse(ncclInvalidUsage, std::string(call.function) + ": " + why);
  }
  if (call.count != 0) {
    session.group_start();
    messages(*communicator, [&](Collective collective, int peer) {
      call.collective = collective;
      announce(session, call, *communicator, sum, peer);
    });
    session.group_end();
  }
  const ncclResult_t result = nccl();
  return session.failed() ? ncclRemoteError : result;
}

}  // namespace

extern "C" {

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return run({"ncclAllReduce", Collective::all_reduce, send, receive, count, type, comm, op}, [=](ncclRedOp_t o, int) {
    return pass_on<ncclAllReduce>("ncclAllReduce", send, receive, count, type, o, comm, stream);
  });
}

ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return run({"ncclBroadcast", Collective::broadcast, send, receive, count, type, comm, sum, root},
             [=](ncclRedOp_t, int r) {
               return pass_on<ncclBroadcast>("ncclBroadcast", send, receive, count, type, r, comm, stream);
             });
}

ncclResult_t ncclBcast(void* buffer, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return run({"ncclBcast", Collective::broadcast, buffer, buffer, count, type, comm, sum, root},
             [=](ncclRedOp_t, int r) { return pass_on<ncclBcast>("ncclBcast", buffer, count, type, r, comm, stream); });
}

ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return run({"ncclReduce", Collective::reduce, send, receive, count, type, comm, op, root}, [=](ncclRedOp_t o, int r) {
    return pass_on<ncclReduce>("ncclReduce", send, receive, count, type, o, r, comm, stream);
  });
}

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return run({"ncclAllGather", Collective::all_gather, send, receive, count, type, comm, sum, 0, true},
             [=](ncclRedOp_t, int) {
               return pass_on<ncclAllGather>("ncclAllGather", send, receive, count, type, comm, stream);
             });
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return run({"ncclReduceScatter", Collective::reduce_scatter, send, receive, count, type, comm, op, 0, true},
             [=](ncclRedOp_t o, int) {
               return pass_on<ncclReduceScatter>("ncclReduceScatter", send, receive, count, type, o, comm, stream);
             });
}

ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return run({"ncclSend", Collective::send, send, nullptr, count, type, comm, sum, peer},
             [=](ncclRedOp_t, int p) { return pass_on<ncclSend>("ncclSend", send, count, type, p, comm, stream); });
}

ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return run({"ncclRecv", Collective::recv, nullptr, receive, count, type, comm, sum, peer},
             [=](ncclRedOp_t, int p) { return pass_on<ncclRecv>("ncclRecv", receive, count, type, p, comm, stream); });
}

ncclResult_t ncclAlltoAll(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  return run_messages(
      {.function = "ncclAlltoAll",
       .collective = Collective::send,
       .count = count,
       .type = type,
       .comm = comm,
       .grows = true},
      [](const Communicator& communicator, auto message) {
        for (int rank = 0; rank < communicator.ranks; rank++) {
          message(Collective::send, rank);
          message(Collective::recv, rank);
        }
      },
      [=] { return pass_on<ncclAlltoAll>("ncclAlltoAll", send, receive, count, type, comm, stream); });
}

ncclResult_t ncclGather(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return run_messages(
      {.function = "ncclGather",
       .collective = Collective::send,
       .count = count,
       .type = type,
       .comm = comm,
       .grows = true},
      [root](const Communicator& communicator, auto message) {
        message(Collective::send, root);
        for (int rank = 0; communicator.rank == root && rank < communicator.ranks; rank++) {
          message(Collective::recv, rank);
        }
      },
      [=] { return pass_on<ncclGather>("ncclGather", send, receive, count, type, root, comm, stream); });
}

ncclResult_t ncclScatter(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return run_messages(
      {.function = "ncclScatter",
       .collective = Collective::send,
       .count = count,
       .type = type,
       .comm = comm,
       .grows = true},
      [root](const Communicator& communicator, auto message) {
        for (int rank = 0; communicator.rank == root && rank < communicator.ranks; rank++) {
          message(Collective::send, rank);
        }
        message(Collective::recv, root);
      },
      [=] { return pass_on<ncclScatter>("ncclScatter", send, receive, count, type, root, comm, stream); });
}

ncclResult_t ncclGroupStart() {
  if (Session& session = Session::instance(); session.active()) {
    session.group_start();
  }
  return pass_on<ncclGroupStart>("ncclGroupStart");
}

ncclResult_t ncclGroupEnd() {
  Session& session = Session::instance();
  const bool outermost = session.active() && session.group_end();
  const ncclResult_t result = pass_on<ncclGroupEnd>("ncclGroupEnd");
  if (outermost) {
    session.group_ended(result);
  }
  return session.active() && session.failed() ? ncclRemoteError : result;
}

}  // extern "C"

}  // namespace nbx::nccl::announce
