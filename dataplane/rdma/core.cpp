// Completions and the error state (IBTA volume 1, 10.3.1.6 and 10.8). Invariant: a request or receive completes once,
// in the order of its queue; after on_error() nothing completes any more.
#include "rdma/core.hpp"

namespace nbx::rdma {

namespace {

WcOpcode wc_opcode(WrOpcode opcode) noexcept {
  switch (opcode) {
    case WrOpcode::rdma_write:
    case WrOpcode::rdma_write_with_imm:
      return WcOpcode::rdma_write;
    case WrOpcode::send:
    case WrOpcode::send_with_imm:
    case WrOpcode::send_with_inv:
      return WcOpcode::send;
    case WrOpcode::rdma_read:
      return WcOpcode::rdma_read;
    case WrOpcode::atomic_cmp_and_swp:
      return WcOpcode::comp_swap;
    case WrOpcode::atomic_fetch_and_add:
      return WcOpcode::fetch_add;
  }
  return WcOpcode::send;
}

}  // namespace

Region* Core::local_region(const Qp& qp, const Sge& sge, std::uint8_t access) noexcept {
  Region* region = memory(qp).find(sge.lkey);
  const bool allowed =
      region != nullptr && (region->spec().access & access) == access && region->contains(sge.addr, sge.length);
  return allowed ? region : nullptr;
}

void Core::activate(QueuePair& qp) noexcept {
  TurnLink& link = qp;
  if (!link.linked()) {  // a destroyed one is linked among the destroyed
    turns.push_back(link);
  }
}

bool Core::may_start(QueuePair& qp, Instant now) noexcept {
  if (qp.limiter == nullptr) {
    return true;
  }
  const Instant start = qp.limiter->next_start(now);
  if (start > now) {
    wheel.arm(*qp.limiter, start);
  }
  return start <= now;
}

void Core::started(QueuePair& qp, std::uint32_t frame_bytes, Instant now) noexcept {
  if (qp.limiter != nullptr) {
    qp.limiter->sent(frame_bytes, now);
  }
}

void Core::complete_send(QueuePair& qp, WcStatus status, Instant now) noexcept {
  const Wqe wqe = qp.requester.wqes.front();
  qp.requester.wqes.pop();
  if (status == WcStatus::success) {
    ++qp.statistics().message_tx;
    if (!wqe.signaled) {
      return;
    }
  } else {
    ++qp.statistics().message_fail;
    counters.count(Counter::req_cqe_error);
  }
  Completion completion;
  completion.wr_id = wqe.wr_id;
  completion.status = status;
  completion.opcode = wc_opcode(wqe.opcode);
  completion.byte_len = wqe.local.length;
  qp.user().on_completion(qp, completion, now);
}

void Core::complete_receive(QueuePair& qp, Completion completion, Instant now) noexcept {
  completion.wr_id = qp.responder.receives.front().wr_id;
  qp.responder.receives.pop();
  if (completion.status != WcStatus::success) {
    counters.count(Counter::resp_cqe_error);
  }
  qp.user().on_completion(qp, completion, now);
}

void Core::deliver(const QueuePair& qp, Delivery delivery, Instant now) noexcept {
  if (observer != nullptr) {
    delivery.qpn = qp.qpn();
    delivery.ghost = qp.ghost();
    observer->on_delivery(delivery, now);
  }
}

void Core::forget_kept(QueuePair& qp) noexcept {
  pool.free_all(qp.responder.kept);
  kept -= qp.responder.kept_size;
  qp.responder.kept_size = 0;
}

void Core::fail(QueuePair& qp, WcStatus cause, Instant now) noexcept {
  if (qp.state() == QpState::error || qp.destroyed) {
    return;
  }
  qp.set_state(QpState::error);
  qp.requester.waiting = RequesterState::Waiting::nothing;
  counters.count(Counter::qp_errors);
  forget_kept(qp);
  while (!qp.destroyed && !qp.requester.wqes.empty()) {
    complete_send(qp, WcStatus::wr_flush_err, now);
  }
  while (!qp.destroyed && !qp.responder.receives.empty()) {
    complete_receive(qp, {.status = WcStatus::wr_flush_err, .opcode = WcOpcode::recv}, now);
  }
  if (!qp.destroyed) {
    qp.user().on_error(qp, cause, now);
  }
}

}  // namespace nbx::rdma
