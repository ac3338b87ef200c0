#include "sim/ranks.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>

#include "report/to_json.hpp"

namespace nbx::sim {
namespace {

constexpr std::uint32_t region_key = 0x1000;
constexpr std::uint32_t posted_max = 16;  // requests of a queue pair
// A message's address tells its receiver which operation and lane it is of. Ranks are never 2^16 operations apart.
constexpr unsigned lane_shift = 36;
constexpr unsigned operation_shift = 46;
constexpr std::uint64_t operations_apart = 1ULL << 16U;
static_assert(lanes_max <= 1U << (operation_shift - lane_shift));

}  // namespace

/// What a rank sends to another on.
class Ranks::Connection {
 public:
  Connection() = default;
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  Connection(Connection&&) = delete;
  Connection& operator=(Connection&&) = delete;
  virtual void send(std::uint64_t operation, std::uint32_t lane, std::uint32_t bytes, Instant now) = 0;
  /// nullptr: it has none.
  [[nodiscard]] virtual const rdma::Qp* qp() const noexcept { return nullptr; }
  [[nodiscard]] virtual const rdma::Qp* peer() const noexcept { return nullptr; }
  [[nodiscard]] virtual Latencies latencies() const noexcept { return {}; }
};

/// In packets.
class Ranks::QueuePair final : public Connection, public rdma::QpUser {
 public:
  QueuePair(Ranks& owner, Rank& from, std::uint32_t to) : owner_(owner), from_(from), to_(to) {}

  void use(rdma::Transport& transport, rdma::Qp& qp, const rdma::Qp& peer) noexcept {
    transport_ = &transport;
    qp_ = &qp;
    peer_ = &peer;
  }
  void send(std::uint64_t operation, std::uint32_t lane, std::uint32_t bytes, Instant now) override {
    const std::uint64_t address = operation % operations_apart << operation_shift | std::uint64_t{lane} << lane_shift;
    waiting_.push_back({.wr_id = operation,
                        .opcode = rdma::WrOpcode::rdma_write,
                        .local = {0, bytes, region_key},
                        .remote_addr = address,
                        .rkey = region_key});
    under_way_.push_back({now, bytes, qp_->stats().data_frames_retransmitted});
    post(now);
  }
  [[nodiscard]] const rdma::Qp* qp() const noexcept override { return qp_; }
  [[nodiscard]] const rdma::Qp* peer() const noexcept override { return peer_; }
  [[nodiscard]] Latencies latencies() const noexcept override { return latencies_; }

  void on_completion(rdma::Qp&, const rdma::Completion& completion, Instant now) noexcept override;
  void on_error(rdma::Qp&, rdma::WcStatus cause, Instant now) noexcept override;

 private:
  void post(Instant now) {
    for (; !waiting_.empty() && posted_ != posted_max && transport_->post_send(*qp_, waiting_.front(), now);
         ++posted_) {
      waiting_.pop_front();
    }
  }

  Ranks& owner_;
  Rank& from_;
  std::uint32_t to_;
  rdma::Transport* transport_ = nullptr;
  rdma::Qp* qp_ = nullptr;
  const rdma::Qp* peer_ = nullptr;
  std::deque<rdma::SendWr> waiting_;
  struct UnderWay {
    Instant since;
    std::uint32_t bytes;
    std::uint64_t retransmitted;  // packets of the queue pair, then
  };
  std::deque<UnderWay> under_way_;  // what waits, and what is not acknowledged
  std::uint32_t posted_ = 0;
  Latencies latencies_;
};

/// In closed form. Messages come in, and are acknowledged, in the order in which they were sent.
class Ranks::Shortcut final : public Connection, public TimerClient {
 public:
  Shortcut(Wheel& wheel, ClosedForm& form, Ranks& owner, Rank& from, Rank& to);

  void send(std::uint64_t operation, std::uint32_t lane, std::uint32_t bytes, Instant now) override;
  void on_timer(TimerNode&, Instant now) noexcept override;

 private:
  struct Due {
    Instant at;
    std::uint64_t operation;
    std::uint32_t lane;
  };
  void arm() {
    const Instant arrival = arriving_.empty() ? Instant::never() : arriving_.front().at;
    const Instant ack = acknowledged_.empty() ? Instant::never() : acknowledged_.front().at;
    if (const Instant next = std::min(arrival, ack); next != Instant::never()) {
      wheel_.arm(timer_, next);
    }
  }

  Wheel& wheel_;
  ClosedForm& form_;
  Ranks& owner_;
  Rank& from_;
  Rank& to_;
  ClosedForm::Path path_;
  std::deque<Due> arriving_;
  std::deque<Due> acknowledged_;
  TimerNode timer_;
};

class Ranks::Rank final : public rdma::QpUser, public TimerClient {
 public:
  Rank(Ranks& owner, std::uint32_t number) : owner_(owner), number_(number) { timer_.client = this; }

  void take_seat(const ghost::Context& context, GhostId ghost) {
    context_.emplace(context);
    context_->ghost = ghost;
    context_->transport.memory(ghost).add({.length = 1ULL << 62U,
                                           .key = region_key,
                                           .access = rdma::access::local_write | rdma::access::remote_write,
                                           .backing = rdma::Backing::sink});
  }
  [[nodiscard]] bool seated() const noexcept { return context_.has_value(); }
  [[nodiscard]] const ghost::Context& context() const { return *context_; }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] bool done() const noexcept { return step_ == owner_.job_.steps && works_.empty(); }

  void start(Instant now) {
    enter_step();
    advance(now);
  }
  /// Begins what it may begin.
  void advance(Instant now) {
    while (step_ != owner_.job_.steps) {
      while (!ready_.empty()) {
        const std::size_t next = ready_.front();
        ready_.pop_front();
        begin(next, now);
      }
      if (left_ != 0) {
        return;
      }
      if (++step_ != owner_.job_.steps) {
        enter_step();
      }
    }
    owner_.done_ += done() ? 1 : 0;
  }

  /// A message of operation `i` was acknowledged.
  void on_sent(std::uint64_t i, Instant now) {
    --work(i).to_complete;
    end_if_complete(i, now);
  }

  /// A message came in. A sender may be ahead of this rank, never behind it.
  void on_write(rdma::Qp&, std::uint64_t addr, std::uint32_t, Instant now) noexcept override {
    const std::uint64_t oldest = (step_ - std::min<std::uint64_t>(step_, owner_.staleness_)) * owner_.operations();
    on_received(oldest + ((addr >> operation_shift) - oldest) % operations_apart,
                addr >> lane_shift & ((1U << (operation_shift - lane_shift)) - 1), now);
  }
  void on_received(std::uint64_t i, std::size_t lane, Instant now) {
    ++work(i).received[lane];
    ++owner_.received_;
    if (work(i).started) {
      send(i, now);
      end_if_complete(i, now);
    }
  }
  void on_completion(rdma::Qp&, const rdma::Completion&, Instant) noexcept override {}
  void on_error(rdma::Qp&, rdma::WcStatus cause, Instant now) noexcept override { owner_.fail(number_, cause, now); }

  [[nodiscard]] std::string waiting() const {
    std::string text = "rank " + std::to_string(number_) + " is in step " + std::to_string(step_);
    for (const auto& [i, work] : works_) {
      if (!work.started) {
        continue;
      }
      text += ", " + name_of(owner_.operation(i)) + ":";
      for (std::size_t lane = 0; lane < work.part.in.size(); ++lane) {
        if (work.part.in[lane] == 0) {
          continue;
        }
        text += " " + std::to_string(work.received[lane]) + " of " + std::to_string(work.part.in[lane]) +
                " messages received,";
      }
      text += " " + std::to_string(work.to_complete) + " to be sent or acknowledged";
    }
    return text;
  }

 private:
  /// One operation: what is to be done, and what is.
  struct Work {
    Part part;
    std::vector<std::uint64_t> received;  // messages, by lane
    std::vector<std::uint64_t> sent;      // handed to their connection, by stream
    std::uint64_t to_complete = 0;        // not acknowledged yet
    bool started = false;
    bool computing = false;
  };

  /// What waits for nothing is ready.
  void enter_step() {
    left_ = owner_.operations();
    begun_.assign(left_, false);
    waits_.resize(left_);
    for (std::size_t o = 0; o < left_; ++o) {
      waits_[o] = owner_.waits_for_[o].size();
      if (waits_[o] == 0) {
        ready_.push_back(o);
      }
    }
  }
  /// Nothing in this step waits for the operation any more.
  void release(std::size_t o) {
    --left_;
    for (const std::size_t next : owner_.waited_by_[o]) {
      if (--waits_[next] == 0) {
        ready_.push_back(next);
      }
    }
  }

  Work& work(std::uint64_t i) {
    const auto [found, made] = works_.try_emplace(i);
    Work& work = found->second;
    if (made) {
      work.part = part_of(owner_.operation(i), number_, static_cast<std::uint32_t>(owner_.ranks_.size()));
      work.received.resize(work.part.in.size());
      work.sent.resize(work.part.out.size());
      for (const Stream& stream : work.part.out) {
        work.to_complete += stream.messages;
      }
    }
    return work;
  }

  /// An operation of this step.
  void begin(std::size_t o, Instant now) {
    const std::uint64_t i = step_ * owner_.operations() + o;
    owner_.began(i, number_, now);
    begun_[o] = true;
    Work& w = work(i);
    w.started = true;
    if (w.part.compute != Duration::zero()) {
      double factor = 1;
      for (const config::SlowRank& slow : owner_.job_.stragglers) {
        factor = *slow.rank == number_ ? slow.factor.value : factor;
      }
      w.computing = true;
      computing_.emplace_back(
          now + Duration{static_cast<std::int64_t>(static_cast<double>(w.part.compute.count()) * factor)}, i);
      arm();
    }
    send(i, now);
    const std::uint32_t staleness = owner_.operation(i).staleness;
    if (complete(w)) {
      end(i, now);
    }
    if (staleness != 0 && (step_ < staleness || !works_.contains(i - staleness * owner_.operations()))) {
      release(o);
    }
  }
  /// What has ended is forgotten.
  void end(std::uint64_t i, Instant now) {
    works_.erase(i);
    owner_.ended(i, number_, now);
    const std::size_t o = i % owner_.operations();
    const bool holds_up = step_ - i / owner_.operations() == owner_.operation(i).staleness && begun_[o];
    if (holds_up && step_ != owner_.job_.steps) {
      release(o);
    }
  }

  void send(std::uint64_t i, Instant now) {
    Work& w = work(i);
    for (std::size_t s = 0; s < w.part.out.size(); ++s) {
      const Stream& stream = w.part.out[s];
      for (const std::uint64_t allowed = stream.allowed(w.received); w.sent[s] != allowed; ++w.sent[s]) {
        owner_.connections_.at({number_, stream.to, stream.lane})
            ->send(i, stream.lane, stream.bytes_of(w.sent[s]), now);
      }
    }
  }

  [[nodiscard]] static bool complete(const Work& w) {
    return w.started && !w.computing && w.to_complete == 0 && w.received == w.part.in;
  }
  void end_if_complete(std::uint64_t i, Instant now) {
    if (complete(work(i))) {
      end(i, now);
      advance(now);
    }
  }

  void arm() {
    if (const auto next = std::min_element(computing_.begin(), computing_.end()); next != computing_.end()) {
      context_->wheel.arm(timer_, next->first);
    }
  }
  void on_timer(TimerNode&, Instant now) noexcept override {
    std::vector<std::uint64_t> over;
    std::erase_if(computing_, [&](const auto& entry) {
      const bool due = entry.first <= now;
      if (due) {
        over.push_back(entry.second);
      }
      return due;
    });
    arm();
    for (const std::uint64_t i : over) {
      work(i).computing = false;
      end_if_complete(i, now);
    }
  }

  Ranks& owner_;
  std::uint32_t number_;
  std::optional<ghost::Context> context_;
  // Of the step that it is in: operations that may begin, how many others each waits for, which have begun, and how
  // many the step still waits for.
  std::uint64_t step_ = 0;
  std::deque<std::size_t> ready_;
  std::vector<std::size_t> waits_;
  std::vector<bool> begun_;
  std::size_t left_ = 0;
  std::unordered_map<std::uint64_t, Work> works_;  // not ended, by operation, counted through all steps
  std::vector<std::pair<Instant, std::uint64_t>> computing_;
  TimerNode timer_;
};

Ranks::Shortcut::Shortcut(Wheel& wheel, ClosedForm& form, Ranks& owner, Rank& from, Rank& to)
    : wheel_(wheel), form_(form), owner_(owner), from_(from), to_(to), path_(form.path(from.number(), to.number())) {
  timer_.client = this;
}
void Ranks::Shortcut::send(std::uint64_t operation, std::uint32_t lane, std::uint32_t bytes, Instant now) {
  const ClosedForm::Times times = form_.send(path_, from_.number(), to_.number(), bytes, now);
  arriving_.push_back({times.arrived, operation, lane});
  acknowledged_.push_back({times.acknowledged, operation, lane});
  owner_.acknowledged(
      operation,
      {.from = from_.number(), .to = to_.number(), .bytes = bytes, .since = now, .until = times.acknowledged});
  arm();
}
void Ranks::Shortcut::on_timer(TimerNode&, Instant now) noexcept {
  while (!arriving_.empty() && arriving_.front().at <= now) {
    const Due due = arriving_.front();
    arriving_.pop_front();
    to_.on_received(due.operation, due.lane, now);
  }
  while (!acknowledged_.empty() && acknowledged_.front().at <= now) {
    const Due due = acknowledged_.front();
    acknowledged_.pop_front();
    from_.on_sent(due.operation, now);
  }
  arm();
}

void Ranks::QueuePair::on_completion(rdma::Qp&, const rdma::Completion& completion, Instant now) noexcept {
  if (completion.status == rdma::WcStatus::success) {
    --posted_;
    const UnderWay message = under_way_.front();
    under_way_.pop_front();
    latencies_.add(now - message.since);
    owner_.acknowledged(completion.wr_id, {.from = from_.number(),
                                           .to = to_,
                                           .bytes = message.bytes,
                                           .since = message.since,
                                           .until = now,
                                           .resent = qp_->stats().data_frames_retransmitted != message.retransmitted});
    post(now);
    from_.on_sent(completion.wr_id, now);
  }
}
void Ranks::QueuePair::on_error(rdma::Qp&, rdma::WcStatus cause, Instant now) noexcept {
  owner_.fail(from_.number(), cause, now, to_);
}

Ranks::Ranks(const config::Job& job, std::uint32_t ranks, std::uint32_t path_mtu, std::optional<ClosedForm> closed_form,
             std::function<void(const Message&)> on_message)
    : job_(job),
      path_mtu_(path_mtu),
      closed_form_(std::move(closed_form)),
      on_message_(std::move(on_message)),
      waits_for_(config::waits_for(job)),
      waited_by_(waits_for_.size()),
      spans_(job.steps, std::vector<Span>(job.each_step.size())),
      steps_(job.steps),
      parts_(job, ranks) {
  for (std::size_t o = 0; o < waits_for_.size(); ++o) {
    for (const std::size_t before : waits_for_[o]) {
      waited_by_[before].push_back(o);
    }
    staleness_ = std::max(staleness_, job.each_step[o]->staleness);
  }
  for (std::uint32_t i = 0; i < ranks; ++i) {
    ranks_.push_back(std::make_unique<Rank>(*this, i));
  }
}
Ranks::~Ranks() = default;

void Ranks::seat(std::uint32_t first, std::uint32_t n, const ghost::Context& context) {
  for (std::uint32_t i = 0; i < n; ++i) {
    ranks_[first + i]->take_seat(context, GhostId{i});
  }
}

void Ranks::start(Instant now) {
  for (const auto& operation : job_.each_step) {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const Stream& stream : part_of(*operation, rank, static_cast<std::uint32_t>(ranks_.size())).out) {
        connect(rank, stream.to, stream.lane);
        messages_ += stream.messages * job_.steps;
      }
    }
  }
  for (const auto& rank : ranks_) {
    rank->start(now);
  }
}

void Ranks::connect(std::uint32_t from, std::uint32_t to, std::uint32_t lane) {
  auto& connection = connections_[{from, to, lane}];
  if (connection) {
    return;
  }
  if (closed_form_ && closed(from) && closed(to)) {
    connection =
        std::make_unique<Shortcut>(ranks_[from]->context().wheel, *closed_form_, *this, *ranks_[from], *ranks_[to]);
  } else {
    connection = connect_queue_pairs(from, to);
  }
}

bool Ranks::closed(std::uint32_t rank) const {
  return std::any_of(job_.closed_form.begin(), job_.closed_form.end(),
                     [&](const auto& range) { return range->first <= rank && rank <= range->last; });
}

std::unique_ptr<Ranks::Connection> Ranks::connect_queue_pairs(std::uint32_t from, std::uint32_t to) {
  const ghost::Context& near = ranks_[from]->context();
  const ghost::Context& far = ranks_[to]->context();
  const IpAddress& far_ip = far.identity().addresses.front().ip;
  const auto there = near.path_to(far_ip, far.identity().mac);
  const auto back = far.path_to(near.identity().addresses.front().ip, near.identity().mac);
  if (!there || !back) {
    failure_ = "ranks " + std::to_string(from) + " and " + std::to_string(to) + " have no addresses of one family";
    return nullptr;
  }
  auto connection = std::make_unique<QueuePair>(*this, *ranks_[from], to);
  rdma::QpAttr sender = near.defaults.qp_attr();
  sender.path_mtu = path_mtu_;
  sender.path = *there;
  // As many paths as there are connections: NICs take the port from the queue pair's number.
  sender.path.udp_source_port = static_cast<std::uint16_t>(0xc000U | (connections_.size() * 0x9e37U & 0x3fffU));
  sender.max_send_wr = posted_max;
  sender.max_recv_wr = 1;
  sender.max_dest_rd_atomic = 1;
  rdma::QpAttr receiver = sender;
  receiver.path = *back;
  receiver.path.udp_source_port = sender.path.udp_source_port;
  receiver.max_send_wr = 1;
  receiver.access = rdma::access::remote_write;
  receiver.report_writes = true;
  rdma::Qp* const out = near.transport.create_qp(near.ghost, sender, *connection);
  rdma::Qp* const in = far.transport.create_qp(far.ghost, receiver, *ranks_[to]);
  sender.qpn = receiver.dest_qpn = out->qpn();
  receiver.qpn = sender.dest_qpn = in->qpn();
  near.transport.connect_qp(*out, sender);
  far.transport.connect_qp(*in, receiver);
  connection->use(near.transport, *out, *in);
  queue_pairs_ += 2;
  return connection;
}

std::string Ranks::waiting() const {
  constexpr std::size_t told_max = 8;
  std::string text;
  std::size_t told = 0;
  for (const auto& rank : ranks_) {
    if (!rank->done() && ++told <= told_max) {
      text += "\n  " + rank->waiting();
    }
  }
  return told > told_max ? text + "\n  and " + std::to_string(told - told_max) + " more" : text;
}

std::vector<Flow> Ranks::flows() const {
  std::vector<Flow> flows;
  for (const auto& [key, connection] : connections_) {
    if (connection->qp() != nullptr) {
      flows.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), connection->qp(), connection->peer(),
                       connection->latencies()});
    }
  }
  return flows;
}

double Ranks::share_done() const noexcept {
  return messages_ == 0 ? 0 : static_cast<double>(received_) / static_cast<double>(messages_);
}

void Ranks::acknowledged(std::uint64_t i, const Message& message) {
  parts_.on_message(i, message.from, message.to, message.since, message.resent, message.until);
  if (on_message_) {
    Message whole = message;
    whole.step = i / operations();
    whole.operation = i % operations();
    on_message_(whole);
  }
}
void Ranks::began(std::uint64_t i, std::uint32_t rank, Instant now) {
  parts_.began(i, rank, now);
  Span& span = spans_[i / operations()][i % operations()];
  span.first_start = std::min(span.first_start, now);
  Span& step = steps_[i / operations()];
  step.first_start = std::min(step.first_start, now);
}
void Ranks::ended(std::uint64_t i, std::uint32_t rank, Instant now) {
  parts_.ended(i, rank, now);
  Span& span = spans_[i / operations()][i % operations()];
  span.last_end = std::max(span.last_end, now);
  Span& step = steps_[i / operations()];
  step.last_end = std::max(step.last_end, now);
}

void Ranks::fail(std::uint32_t rank, rdma::WcStatus cause, Instant now, std::optional<std::uint32_t> peer) {
  if (failure_.empty()) {
    failure_ = "rank " + std::to_string(rank) + ": the queue pair " +
               (peer ? "to rank " + std::to_string(*peer) : std::string("of a peer")) + " failed after " +
               std::to_string(static_cast<double>(now.ps) * 1e-12) + " s: " + std::string(report::name(cause));
  }
}

}  // namespace nbx::sim
