// A ghost's connection manager under test, in virtual time: with a user that keeps what it is told, and with the test
// as the peer that sends and receives single messages.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "rdma/cm.hpp"
#include "support/rdma_harness.hpp"

namespace nbx::test {

template <class Message>
std::optional<Message> decode_mad(ConstBytes mad) {
  if constexpr (std::is_same_v<Message, wire::CmReq>) {
    return wire::decode_req(mad);
  } else if constexpr (std::is_same_v<Message, wire::CmRep>) {
    return wire::decode_rep(mad);
  } else if constexpr (std::is_same_v<Message, wire::CmRtu>) {
    return wire::decode_rtu(mad);
  } else if constexpr (std::is_same_v<Message, wire::CmRej>) {
    return wire::decode_rej(mad);
  } else if constexpr (std::is_same_v<Message, wire::CmMra>) {
    return wire::decode_mra(mad);
  } else if constexpr (std::is_same_v<Message, wire::CmDreq>) {
    return wire::decode_dreq(mad);
  } else if constexpr (std::is_same_v<Message, wire::CmDrep>) {
    return wire::decode_drep(mad);
  } else if constexpr (std::is_same_v<Message, wire::CmSidrReq>) {
    return wire::decode_sidr_req(mad);
  } else {
    return wire::decode_sidr_rep(mad);
  }
}

template <class Message>
Bytes encode_mad(const Message& message) {
  Bytes mad(wire::mad_size);
  wire::encode(message, wire::MadBytes{mad});
  return mad;
}

template <std::size_t Size>
void put_private_data(std::string_view text, wire::PrivateData<Size>& to, std::size_t at = 0) {
  std::memcpy(to.data() + at, text.data(), text.size());
}
inline std::string text_of(ConstBytes bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes.data()), size};
}

/// A ghost with a connection manager and a user that accepts what it is asked, unless the test has other plans.
struct CmHost final : rdma::CmUser, rdma::QpUser {
  static constexpr GhostId ghost = Endpoint::ghost;

  explicit CmHost(const rdma::CmConfig& config = {}, std::uint64_t seed = 1)
      : endpoint({}, 512), cm(config, *endpoint.transport, endpoint.wheel, endpoint.counters, Rng{seed}) {
    endpoint.transport->set_mad_handler(&cm);
  }

  rdma::Qp& make_qp(rdma::QpType type = rdma::QpType::rc) {
    rdma::QpAttr attr = qp_attr;
    attr.type = type;
    return *endpoint.transport->create_qp(ghost, attr, *this);
  }
  bool accept(rdma::ConnectionId id, rdma::QpType type, Instant now) {
    rdma::Qp& qp = make_qp(type);
    qps[id] = &qp;
    return cm.accept(id, qp, accept_param, now);
  }
  rdma::ConnectionId connect(const rdma::ConnectParam& param, Instant now, rdma::QpType type = rdma::QpType::rc) {
    rdma::Qp& qp = make_qp(type);
    const rdma::ConnectionId connection = cm.connect(ghost, qp, param, *this, now);
    if (connection == rdma::ConnectionId::none) {
      endpoint.transport->destroy_qp(qp);
    } else {
      qps[connection] = &qp;
    }
    return connection;
  }

  void on_request(rdma::ConnectionId id, const rdma::ConnectRequest& r, Instant now) noexcept override {
    asked = id;
    request = r;
    request_data.assign(r.private_data.begin(), r.private_data.end());
    request.private_data = {};
    if (answer) {
      answer(id, r, now);
    } else {
      EXPECT_TRUE(accept(id, r.type, now));
    }
  }
  void on_established(rdma::ConnectionId established, ConstBytes data, Instant now) noexcept override {
    log.emplace_back("established");
    established_data.assign(data.begin(), data.end());
    ASSERT_TRUE(qps.contains(established));
    EXPECT_EQ(qps[established]->state(), rdma::QpState::rts);
    if (then_established) {
      then_established(established, now);
    }
  }
  void on_disconnected(rdma::ConnectionId gone, rdma::DisconnectCause cause, std::uint16_t reason,
                       Instant) noexcept override {
    constexpr std::array<std::string_view, 4> causes{"local", "remote", "rejected", "timed_out"};
    log.push_back("disconnected " + std::string(causes[static_cast<std::size_t>(cause)]) +
                  (reason == 0 ? "" : " " + std::to_string(reason)));
    if (const auto at = qps.find(gone); at != qps.end()) {
      endpoint.transport->destroy_qp(*at->second);
      qps.erase(at);
    }
  }
  SidrAnswer on_sidr(GhostId, std::uint64_t, const wire::Path&, Instant) noexcept override { return sidr; }
  void on_completion(rdma::Qp&, const rdma::Completion&, Instant) noexcept override {}
  void on_error(rdma::Qp&, rdma::WcStatus, Instant) noexcept override {}

  [[nodiscard]] std::uint64_t count(Counter c) const { return endpoint.counters.get(c); }
  [[nodiscard]] std::uint64_t count(Drop d) const { return endpoint.counters.get(d); }
  /// Nothing is left of any connection.
  void expect_clean(Instant now) {
    static_cast<void>(endpoint.sent(now));
    EXPECT_EQ(cm.connections(), 0U);
    EXPECT_EQ(endpoint.wheel.armed(), 0U);
    EXPECT_EQ(endpoint.transport->qp_count(), 0U);
  }

  Endpoint endpoint;
  rdma::Cm cm;
  rdma::QpAttr qp_attr{};
  rdma::AcceptParam accept_param{};
  SidrAnswer sidr{};
  std::function<void(rdma::ConnectionId, const rdma::ConnectRequest&, Instant)> answer;
  std::function<void(rdma::ConnectionId, Instant)> then_established;

  rdma::ConnectionId asked = rdma::ConnectionId::none;  // by the last request
  rdma::ConnectRequest request{};
  Bytes request_data;
  Bytes established_data;
  std::vector<std::string> log;
  std::map<rdma::ConnectionId, rdma::Qp*> qps;
};

/// One connection manager and the test as its peer.
class CmDialogue : public testing::Test {
 protected:
  explicit CmDialogue(const rdma::CmConfig& config = {}) : host(config) {}

  template <class Message>
  void receive(const Message& message) {
    receive_from(path, message);
  }
  template <class Message>
  void receive_from(const wire::Path& reply_path, const Message& message) {
    host.cm.on_mad(CmHost::ghost, encode_mad(message), reply_path, now);
  }
  /// The MADs that the ghost has sent since the last call.
  std::vector<Bytes> mads() {
    std::vector<Bytes> out;
    for (const Bytes& frame : host.endpoint.sent(now)) {
      wire::Parsed parsed;
      EXPECT_EQ(wire::parse(frame, {}, parsed), Drop::none);
      EXPECT_EQ(parsed.dest_qpn, gsi_qpn);
      EXPECT_EQ(wire::destination_ip(frame, parsed), path.destination_ip);
      const ConstBytes payload = wire::payload(frame, parsed);
      out.emplace_back(payload.begin(), payload.end());
    }
    return out;
  }
  /// The one message that the ghost has sent.
  template <class Message>
  Message sent() {
    const std::vector<Bytes> out = mads();
    EXPECT_EQ(out.size(), 1U);
    const auto message = out.size() == 1 ? decode_mad<Message>(out[0]) : std::nullopt;
    EXPECT_TRUE(message) << (out.empty() ? "silence" : "another message");
    return message.value_or(Message{});
  }
  void expect_silence() { EXPECT_TRUE(mads().empty()); }
  void pass(Duration time) {
    const Instant until = now + time;
    while (host.endpoint.wheel.next_deadline() <= until) {
      now = host.endpoint.wheel.next_deadline();
      host.endpoint.wheel.run(now);
    }
    now = until;
  }

  wire::Path path = path_between(9, 1);  // from the ghost to the test
  CmHost host;
  Instant now{};
};

}  // namespace nbx::test
