#include "daemon/broker.hpp"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "daemon/netlink.hpp"

namespace nbx::daemon {
namespace {

// On the channel: a request is a SocketRequest; an answer is a descriptor beside an empty text, or the text of an
// error. Before the first request the child sends one answer per network, with its TUN device.
struct SocketRequest {
  std::uint32_t network = 0;
};

constexpr std::size_t text_max = 512;

std::string system_error(const std::string& what) { return what + ": " + std::strerror(errno); }

bool send_answer(int channel, const Result<UniqueFd>& answer) {
  std::string text = answer.ok() ? "" : answer.error().message.substr(0, text_max - 1);
  iovec data{text.data(), text.size() + 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (answer.ok()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = answer->get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return sendmsg(channel, &message, MSG_NOSIGNAL) >= 0;
}

Result<UniqueFd> receive_answer(int channel) {
  std::array<char, text_max> text{};
  iovec data{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (recvmsg(channel, &message, MSG_CMSG_CLOEXEC) <= 0) {
    return Error{"the process that owns the ghosts' network namespaces is gone"};
  }
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr) {
    return Error{text.data()};
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return UniqueFd(fd);
}

// --- the child ---

void write_file(const char* path, const std::string& text) { std::ofstream(path) << text; }

/// Becomes somebody who may make network namespaces.
std::optional<Error> gain_rights() {
  if (geteuid() == 0) {
    return std::nullopt;
  }
  const std::string uid = std::to_string(geteuid());
  const std::string gid = std::to_string(getegid());
  if (unshare(CLONE_NEWUSER) != 0) {
    return Error{system_error("user namespace")};
  }
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", "0 " + uid + " 1");
  write_file("/proc/self/gid_map", "0 " + gid + " 1");
  return std::nullopt;
}

Result<UniqueFd> open_tun(const char* name) {
  UniqueFd tun(open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!tun) {
    return Error{system_error("/dev/net/tun")};
  }
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, name, sizeof request.ifr_name - 1);
  if (ioctl(tun.get(), TUNSETIFF, &request) != 0) {
    return Error{system_error("TUN device")};
  }
  return tun;
}

/// In a network namespace of its own, in which the caller is from then on.
Result<UniqueFd> make_network(const GhostNetwork& network) {
  constexpr const char* name = "ghosts";
  if (unshare(CLONE_NEWNET) != 0) {
    return Error{system_error("network namespace")};
  }
  // An address of the TUN device is enough of a link; the kernel need not make one up or ask for routers.
  write_file("/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1");
  write_file("/proc/sys/net/ipv6/conf/default/router_solicitations", "0");
  Result<UniqueFd> tun = open_tun(name);
  if (!tun) {
    return tun;
  }
  Result<Netlink> netlink = Netlink::open();
  if (!netlink) {
    return netlink.error();
  }
  const unsigned device = if_nametoindex(name);
  std::optional<Error> error = netlink->set_up(if_nametoindex("lo"), std::nullopt);
  error = error ? error : netlink->set_up(device, network.mtu);
  bool any_v6 = false;
  for (const IpAddress& address : network.addresses) {
    error = error ? error : netlink->add_address(device, address);
    any_v6 |= !address.is_v4();
  }
  error = error ? error : netlink->add_default_route(device, false);
  if (any_v6) {
    error = error ? error : netlink->add_default_route(device, true);
  }
  if (error) {
    return *error;
  }
  return tun;
}

Result<UniqueFd> make_socket(int network_namespace) {
  if (setns(network_namespace, CLONE_NEWNET) != 0) {
    return Error{system_error("enter the ghosts' network namespace")};
  }
  UniqueFd made(socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!made) {
    return Error{system_error("TCP socket")};
  }
  return made;
}

void serve(int channel, const std::vector<UniqueFd>& namespaces) {
  SocketRequest request;
  while (recv(channel, &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request)) {
    if (!send_answer(channel, make_socket(namespaces[request.network].get()))) {
      return;
    }
  }
}

void run_child(int channel, pid_t parent, const std::vector<GhostNetwork>& networks) {
  signal(SIGINT, SIG_IGN);  // a Ctrl-C is the emulator's to handle; this process ends when the channel closes
  signal(SIGTERM, SIG_IGN);
  std::optional<Error> error = gain_rights();
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // behind the change of rights, which would undo it
  if (getppid() != parent) {
    return;
  }
  std::vector<UniqueFd> namespaces;
  for (const GhostNetwork& network : networks) {
    const Result<UniqueFd> tun = error ? Result<UniqueFd>(*error) : make_network(network);
    if (!send_answer(channel, tun) || !tun) {
      return;
    }
    namespaces.emplace_back(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  }
  serve(channel, namespaces);
}

}  // namespace

Result<std::unique_ptr<Broker>> Broker::start(const std::vector<GhostNetwork>& networks) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Error{system_error("socket pair")};
  }
  UniqueFd ours(ends[0]);
  UniqueFd childs(ends[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    return Error{system_error("fork")};
  }
  if (child == 0) {
    ours = {};
    run_child(childs.get(), parent, networks);
    _exit(0);
  }
  childs = {};
  std::unique_ptr<Broker> broker(new Broker(child, std::move(ours)));
  for (std::size_t i = 0; i < networks.size(); ++i) {
    Result<UniqueFd> tun = receive_answer(broker->channel_.get());
    if (!tun) {
      return tun.error();
    }
    broker->tuns_.push_back(std::move(*tun));
  }
  return broker;
}

Broker::~Broker() {
  channel_ = {};
  waitpid(child_, nullptr, 0);
}

Result<UniqueFd> Broker::tcp_socket(std::size_t network) {
  const std::scoped_lock lock(mutex_);
  const SocketRequest request{static_cast<std::uint32_t>(network)};
  if (send(channel_.get(), &request, sizeof request, MSG_NOSIGNAL) < 0) {
    return Error{system_error("the process that owns the ghosts' network namespaces")};
  }
  return receive_answer(channel_.get());
}

}  // namespace nbx::daemon
