// One NET/IB connection, what both of its ends have in common: the bytes of the side connection, queue pairs, the
// peer's addresses. Once closed, a connection makes no more calls; its memory lives until the outermost call has
// returned (Registry).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "nccl-glue/net/net.hpp"
#include "nccl-glue/wire/ib.hpp"

namespace nbx::nccl {

class Connection;

/// All connections by number. Calls from outside are wrapped in a Turn: what is removed meanwhile is deleted behind it.
class Registry {
 public:
  class Turn {
   public:
    explicit Turn(Registry& registry) : registry_(registry) { ++registry_.depth_; }
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    Turn(Turn&&) = delete;
    Turn& operator=(Turn&&) = delete;

   private:
    Registry& registry_;
  };

  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  Registry(Registry&&) = delete;
  Registry& operator=(Registry&&) = delete;

  [[nodiscard]] NetId next_id() noexcept { return static_cast<NetId>(++last_); }
  void add(std::unique_ptr<Connection> connection);
  void remove(NetId id) noexcept;
  void close_all() noexcept;
  [[nodiscard]] Connection* find(NetId id) const noexcept;
  /// Expires with the registry: for callbacks that cannot be taken back.
  [[nodiscard]] std::weak_ptr<void> alive() const { return alive_; }

 private:
  std::unordered_map<NetId, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> removed_;
  std::shared_ptr<void> alive_;
  std::uint32_t last_ = 0;
  unsigned depth_ = 0;
};

class Connection : public rdma::QpUser {
 public:
  Connection(Registry& registry, const ghost::Context& context, const NetConfig& config, NetUser& user);
  virtual ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  Connection(Connection&&) = delete;
  Connection& operator=(Connection&&) = delete;

  [[nodiscard]] NetId id() const { return id_; }
  [[nodiscard]] Qpn qpn() const { return qps_.empty() ? Qpn{} : qps_.front()->qpn(); }

  virtual bool post(const NetBuffer& /*buffer*/, std::uint32_t /*tag*/, Instant /*now*/) noexcept { return false; }
  virtual bool send(const NetBuffer& /*buffer*/, Instant /*now*/) noexcept { return false; }
  [[nodiscard]] virtual std::size_t clear_to_send() const noexcept { return 0; }

  /// The side connection: its bytes, and its end.
  void receive(ConstBytes bytes, Instant now) noexcept;
  void peer_closed(Instant now) noexcept;
  /// Frees everything; the user is not told.
  void close() noexcept;
  void book(Account& account);

 protected:
  /// What the peer has to send next. Size 0: nothing.
  struct Expected {
    std::string_view what;
    std::size_t size = 0;
  };
  virtual void on_item(ConstBytes item, Instant now) = 0;
  /// The queue pairs are RTS.
  virtual void on_connected(Instant now) = 0;
  /// What the derived end holds elsewhere.
  virtual void release() noexcept {}
  /// Of the packets that this end sends.
  [[nodiscard]] virtual std::uint8_t traffic_class() const = 0;
  [[nodiscard]] virtual std::uint32_t path_mtu(std::uint32_t peers) const = 0;

  [[nodiscard]] const Version& version() const { return *config_.version; }
  void say(ConstBytes bytes) { context_.streams.send(stream_, bytes); }

  // Steps of the hand-shake; one that answers false has ended the connection.
  bool take_device_list(ConstBytes bytes, Instant now);
  bool take_metadata(ConstBytes bytes, Instant now);
  /// In INIT, with NCCL's attributes.
  bool create_qps(std::size_t count, std::uint8_t access, bool report_writes, Instant now);
  /// This end's records; `own` is the memory that the peer writes to.
  [[nodiscard]] ib::Metadata own_metadata(const IpAddress& gid, const rdma::Region& own) const;
  /// Finds the peer's MACs and brings the queue pairs to RTS.
  void connect_qps(Instant now);
  void set_ready(Instant now);
  /// Ends the connection and says why.
  void fail(const std::string& why, Instant now) noexcept;

  /// The queue pairs that carry message `k`: `parts` of them from `first` on, wrapping around.
  struct Choice {
    std::size_t first = 0;
    std::uint32_t parts = 1;
  };
  [[nodiscard]] Choice choose_qps(std::uint64_t k) const noexcept;
  [[nodiscard]] std::size_t qp_index(const Choice& choice, std::uint32_t part) const noexcept {
    return (choice.first + part) % qps_.size();
  }
  [[nodiscard]] rdma::Qp& qp(std::size_t index) noexcept { return *qps_[index]; }
  /// Which of the peer's devices is behind a queue pair.
  [[nodiscard]] std::size_t peer_device(std::size_t index) const noexcept {
    return static_cast<std::size_t>(peer_.qps[index].device);
  }

  /// Memory of this connection at its ghost, until it is closed.
  rdma::Region& add_region(std::uint64_t length, std::uint8_t access, rdma::Backing backing,
                           std::byte* external = nullptr);

  Registry& registry_;
  ghost::Context context_;
  NetConfig config_;
  NetUser& user_;
  Expected expected_;
  ghost::StreamId stream_ = ghost::StreamId::none;
  ib::DeviceList peer_devices_;
  ib::Metadata peer_;
  bool ready_ = false;
  bool closed_ = false;

 private:
  void on_error(rdma::Qp& qp, rdma::WcStatus cause, Instant now) noexcept final;

  /// What makes the peer's metadata unusable; empty: nothing.
  [[nodiscard]] std::string wrong_with_peer() const;
  [[nodiscard]] std::string wrong_with_device(std::size_t index) const;
  [[nodiscard]] static Ledger::QueuePairs both_ends(const rdma::Qp& qp);
  void resolve(const IpAddress& gid, Instant now);
  void resolved(const IpAddress& gid, std::optional<Mac> mac, Instant now);
  void bring_up(std::size_t index);

  NetId id_;
  std::vector<rdma::Qp*> qps_;
  std::vector<std::uint32_t> keys_;
  std::map<IpAddress, Mac> macs_;  // of the peer's devices
  std::vector<std::byte> input_;
  std::size_t unresolved_ = 0;
  Account* account_ = nullptr;
};

/// "IBV_WC_RETRY_EXC_ERR(12)".
[[nodiscard]] std::string to_string(rdma::WcStatus status);

}  // namespace nbx::nccl
