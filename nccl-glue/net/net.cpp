#include "nccl-glue/net/net.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "nccl-glue/net/acceptor.hpp"
#include "nccl-glue/net/receiver.hpp"
#include "nccl-glue/net/sender.hpp"

namespace nbx::nccl {

class Net::State {
 public:
  explicit State(const ghost::Context& context) : any(context), acceptor(any, registry) {}

  [[nodiscard]] ghost::Context context_of(GhostId ghost) const {
    ghost::Context context = any;
    context.ghost = ghost;
    return context;
  }

  ghost::Context any;
  Registry registry;
  Acceptor acceptor;
};

Net::Net(const ghost::Context& any) : state_(std::make_unique<State>(any)) {}
Net::~Net() { state_->registry.close_all(); }

NetId Net::listen(GhostId ghost, const NetConfig& config, NetUser& user, Handle& handle) {
  const ghost::Context context = state_->context_of(ghost);
  state_->acceptor.listen(ghost, config.port);
  auto receiver = std::make_unique<Receiver>(state_->registry, state_->acceptor, context, config, user);
  const auto& addresses = context.identity().addresses;
  NBX_CHECK(!addresses.empty());
  const auto v4 = std::ranges::find_if(addresses, [](const auto& a) { return a.ip.is_v4(); });
  handle = ib::encode(ib::ListenHandle{.address = (v4 != addresses.end() ? *v4 : addresses.front()).ip,
                                       .port = config.port,
                                       .magic = receiver->magic()});
  const NetId id = receiver->id();
  state_->registry.add(std::move(receiver));
  return id;
}

NetId Net::connect(GhostId ghost, const NetConfig& config, const Handle& handle, NetUser& user, Instant now) {
  auto sender = std::make_unique<Sender>(state_->registry, state_->context_of(ghost), config, handle, user, now);
  const NetId id = sender->id();
  state_->registry.add(std::move(sender));
  return id;
}

bool Net::post(NetId id, const NetBuffer& buffer, std::uint32_t tag, Instant now) noexcept {
  Connection* connection = state_->registry.find(id);
  return connection != nullptr && connection->post(buffer, tag, now);
}

bool Net::send(NetId id, const NetBuffer& buffer, Instant now) noexcept {
  Connection* connection = state_->registry.find(id);
  return connection != nullptr && connection->send(buffer, now);
}

std::size_t Net::clear_to_send(NetId id) const noexcept {
  const Connection* connection = state_->registry.find(id);
  return connection == nullptr ? 0 : connection->clear_to_send();
}

void Net::close(NetId id) noexcept {
  const Registry::Turn turn{state_->registry};
  Connection* connection = state_->registry.find(id);
  if (connection != nullptr) {
    connection->close();
  }
}

void Net::book(NetId id, Account& account) {
  Connection* connection = state_->registry.find(id);
  if (connection != nullptr) {
    connection->book(account);
  }
}

Qpn Net::qpn(NetId id) const noexcept {
  const Connection* connection = state_->registry.find(id);
  return connection == nullptr ? Qpn{} : connection->qpn();
}

}  // namespace nbx::nccl
