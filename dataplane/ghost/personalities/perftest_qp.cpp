#include "ghost/personalities/perftest_qp.hpp"

#include <algorithm>

namespace nbx::ghost {

namespace {

constexpr std::uint8_t peer_access =
    rdma::access::remote_write | rdma::access::remote_read | rdma::access::remote_atomic;
constexpr std::uint32_t perftest_qkey = 0x1111'1111;
constexpr std::uint8_t reads_max = 128;  // what a client that has as many may keep outstanding; rxe has 128

}  // namespace

PerftestQp::PerftestQp(Context& context)
    : context_(context),
      region_(context.transport.memory(context.ghost), 1, region_size, rdma::Backing::sink,
              rdma::access::local_write | peer_access) {
  silence_.client = this;
  rdma::QpAttr attr = context_.defaults.qp_attr();
  attr.adopt_peer = true;  // the hand-shake does not tell -c
  attr.access = peer_access;
  attr.max_dest_rd_atomic = reads_max;
  attr.qkey = perftest_qkey;
  attr.max_recv_wr = receives;
  attr.report_writes = true;
  attr.sq_psn = Psn{static_cast<std::uint32_t>(context_.rng.next()) & mask24};
  qp_ = context_.transport.create_qp(context_.ghost, attr, *this);
  for (std::uint64_t i = 0; qp_ != nullptr && i < receives; ++i) {
    post_receive(i);
  }
}

PerftestQp::~PerftestQp() {
  context_.wheel.cancel(silence_);
  if (qp_ != nullptr) {
    context_.transport.destroy_qp(*qp_);
  }
}

void PerftestQp::set_peer(const PerftestEnd& peer) {
  peer_ = peer;
  kind_ = peer.rkey == 0 ? PerftestKind::send : peer.out_reads > 1 ? PerftestKind::read_or_atomic : PerftestKind::write;
}

void PerftestQp::connect(const PerftestEnd& peer, const wire::Path& path, std::uint32_t path_mtu) {
  set_peer(peer);
  rdma::QpAttr attr = qp_->attr();
  attr.dest_qpn = Qpn{peer.qpn};
  attr.rq_psn = Psn{peer.psn};
  attr.path = path;
  attr.path_mtu = path_mtu;
  context_.transport.connect_qp(*qp_, attr);
}

PerftestEnd PerftestQp::end(const IpAddress& own_gid) const {
  PerftestEnd own;
  own.out_reads = std::min<std::uint32_t>(peer_.out_reads, reads_max);
  own.qpn = qp_->qpn().value;
  own.psn = qp_->attr().sq_psn.value;
  own.rkey = kind_ == PerftestKind::send ? 0 : region_.key();
  own.addr = region_.addr();
  own.gid = own_gid;
  return own;
}

bool PerftestQp::traffic_seen() const noexcept { return qp_->stats().data_frames_rx != 0; }

void PerftestQp::post_receive(std::uint64_t wr_id) {
  context_.transport.post_recv(*qp_, {.wr_id = wr_id, .local = region_.sge(0, region_size)});
}

void PerftestQp::start_write_latency(Instant now) {
  if (kind_ == PerftestKind::write && answering_ == Answering::unknown) {
    answering_ = Answering::yes;
    write_back(first_write_size, now);
  }
}

void PerftestQp::on_write(rdma::Qp&, std::uint64_t, std::uint32_t length, Instant now) noexcept {
  if (answering_ == Answering::yes) {
    write_back(length, now);
  } else {
    answering_ = Answering::no;
  }
}

/// ib_write_lat: the client polls the last byte of its buffer for the number of our WRITE. The size of its messages is
/// not known before its first one; a first WRITE of that byte all over a buffer serves any size up to it.
void PerftestQp::write_back(std::uint32_t length, Instant now) {
  if (write_data_ == nullptr || write_data_->size() < length) {
    write_data_ =
        std::make_unique<Slots>(context_.transport.memory(context_.ghost), 1, std::max(length, first_write_size));
  }
  ++count_;
  const MutableBytes bytes = write_data_->bytes(0).first(length);
  if (count_ == 1) {
    std::ranges::fill(bytes, std::byte{1});
  } else if (!bytes.empty()) {
    bytes.back() = std::byte{count_};
  }
  context_.transport.post_send(*qp_,
                               {.opcode = rdma::WrOpcode::rdma_write,
                                .local = write_data_->sge(0, length),
                                .remote_addr = peer_.addr,
                                .rkey = peer_.rkey},
                               now);
}

/// ib_send_lat waits for an answer to each message, ib_send_bw does not: the first message is answered when nothing
/// more has come for a while.
void PerftestQp::on_completion(rdma::Qp&, const rdma::Completion& completion, Instant now) noexcept {
  if (completion.status != rdma::WcStatus::success || completion.opcode != rdma::WcOpcode::recv) {
    return;
  }
  post_receive(completion.wr_id);
  last_ = completion;
  switch (answering_) {
    case Answering::yes:
      send_back(now);
      break;
    case Answering::unknown:
      if (silence_.linked()) {
        answering_ = Answering::no;
        context_.wheel.cancel(silence_);
      } else {
        context_.wheel.arm(silence_, now + silence);
      }
      break;
    case Answering::no:
      break;
  }
}

void PerftestQp::on_timer(TimerNode&, Instant now) noexcept {
  answering_ = Answering::yes;
  send_back(now);
}

void PerftestQp::send_back(Instant now) {
  rdma::SendWr back{.local = region_.sge(0, last_.byte_len)};
  if (qp_->attr().type == rdma::QpType::ud) {
    back.path = qp_->attr().path;
    back.remote_qpn = last_.source_qpn;
    back.remote_qkey = perftest_qkey;
  }
  context_.transport.post_send(*qp_, back, now);
}

}  // namespace nbx::ghost
