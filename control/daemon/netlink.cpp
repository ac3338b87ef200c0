#include "daemon/netlink.hpp"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

namespace nbx::daemon {
namespace {

/// One request: the netlink header, the family's own header and attributes, in a buffer that fits all of ours.
template <class Header>
class Request {
 public:
  Request(std::uint16_t type, std::uint16_t flags, const Header& header) {
    message_.nlmsg_len = NLMSG_LENGTH(sizeof(Header));
    message_.nlmsg_type = type;
    message_.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
    std::memcpy(bytes_.data() + NLMSG_HDRLEN, &header, sizeof header);
  }

  void add(std::uint16_t type, std::span<const std::uint8_t> value) {
    const rtattr attribute{static_cast<std::uint16_t>(RTA_LENGTH(value.size())), type};
    std::uint8_t* at = bytes_.data() + NLMSG_ALIGN(message_.nlmsg_len);
    std::memcpy(at, &attribute, sizeof attribute);
    std::memcpy(at + RTA_LENGTH(0), value.data(), value.size());
    message_.nlmsg_len = static_cast<std::uint32_t>(NLMSG_ALIGN(message_.nlmsg_len) + RTA_ALIGN(attribute.rta_len));
  }
  void add(std::uint16_t type, std::uint32_t value) {
    std::array<std::uint8_t, sizeof value> bytes;
    std::memcpy(bytes.data(), &value, sizeof value);
    add(type, bytes);
  }

  /// Sends it and answers the kernel's verdict: 0 or errno.
  int perform(int socket) {
    std::memcpy(bytes_.data(), &message_, sizeof message_);
    if (send(socket, bytes_.data(), message_.nlmsg_len, 0) < 0) {
      return errno;
    }
    struct {
      nlmsghdr header;
      nlmsgerr verdict;
      std::array<std::uint8_t, 1024> quoted;  // our own request, and what the kernel says of it in words
    } answer{};
    if (recv(socket, &answer, sizeof answer, 0) < 0) {
      return errno;
    }
    return answer.header.nlmsg_type == NLMSG_ERROR ? -answer.verdict.error : EPROTO;
  }

 private:
  nlmsghdr message_{};
  alignas(NLMSG_ALIGNTO) std::array<std::uint8_t, 256> bytes_{};
};

std::optional<Error> verdict(int error, const std::string& what) {
  return error == 0 ? std::nullopt : std::optional<Error>(Error{what + ": " + std::strerror(error)});
}

/// The bytes that the kernel wants: 4 or 16.
std::span<const std::uint8_t> raw(const IpAddress& address) {
  const std::span<const std::uint8_t> octets = address.octets;
  return address.is_v4() ? octets.last(4) : octets;
}

}  // namespace

Result<Netlink> Netlink::open() {
  UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!socket) {
    return Error{std::string("netlink socket: ") + std::strerror(errno)};
  }
  return Netlink(std::move(socket));
}

std::optional<Error> Netlink::set_up(unsigned interface, std::optional<std::uint32_t> mtu) {
  ifinfomsg header{};
  header.ifi_index = static_cast<int>(interface);
  header.ifi_flags = IFF_UP;
  header.ifi_change = IFF_UP;
  Request request(RTM_NEWLINK, 0, header);
  if (mtu) {
    request.add(IFLA_MTU, *mtu);
  }
  return verdict(request.perform(socket_.get()), "set interface up");
}

std::optional<Error> Netlink::add_address(unsigned interface, const IpAddress& address) {
  ifaddrmsg header{};
  header.ifa_family = address.is_v4() ? AF_INET : AF_INET6;
  header.ifa_prefixlen = address.is_v4() ? 32 : 128;
  header.ifa_flags = IFA_F_NODAD;
  header.ifa_index = interface;
  Request request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, header);
  request.add(IFA_LOCAL, raw(address));
  request.add(IFA_ADDRESS, raw(address));
  return verdict(request.perform(socket_.get()), "add address " + to_string(address));
}

std::optional<Error> Netlink::add_default_route(unsigned interface, bool ipv6) {
  rtmsg header{};
  header.rtm_family = ipv6 ? AF_INET6 : AF_INET;
  header.rtm_table = RT_TABLE_MAIN;
  header.rtm_protocol = RTPROT_STATIC;
  header.rtm_scope = ipv6 ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
  header.rtm_type = RTN_UNICAST;
  Request request(RTM_NEWROUTE, NLM_F_CREATE, header);
  request.add(RTA_OIF, interface);
  return verdict(request.perform(socket_.get()), "add default route");
}

}  // namespace nbx::daemon
