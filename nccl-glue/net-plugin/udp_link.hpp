// RoCEv2 packets of one address over the kernel's UDP sockets: what an RNIC's Ethernet port is to the transport.
//
// The ICRC covers the IP and UDP headers but for what routers change (IBTA 7.8.1, A17.3.3), so these must be known on
// both sides of the kernel. Sent: unconnected sockets with IP_MTU_DISCOVER=DO, so that the kernel sets DF and an IP
// identification of 0, as wire::Encapsulation assumes; and one socket for each UDP source port in use. Received: the
// kernel hands over neither identification nor flags, and the same DF and 0 are assumed. Packets of senders that
// number theirs fail the check and are dropped.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "frame/pool.hpp"

namespace nbx::nccl::plugin {

class UdpLink {
 public:
  [[nodiscard]] static Result<std::unique_ptr<UdpLink>> open(const IpAddress& address);

  /// Readable when packets wait.
  [[nodiscard]] int receive_fd() const noexcept { return receive_.get(); }
  /// What the kernel agreed to buffer for the receiver, in bytes.
  [[nodiscard]] std::size_t receive_buffer() const noexcept { return receive_buffer_; }
  /// A source port for the n-th flow: several give a network's hashing something to choose by.
  [[nodiscard]] std::uint16_t source_port(std::uint32_t n) const noexcept { return senders_[n % senders_.size()].port; }

  /// Takes a batch of packets from the kernel and appends them as parsed frames; how many there were.
  std::size_t receive(FramePool& pool, Counters& counters, Instant now, FrameList& out) noexcept;
  /// Sends frames from the front of the list and frees them. false: the kernel has no room for what is left.
  bool send(FrameList& frames, FramePool& pool, Counters& counters) noexcept;
  /// Writable when it has room again.
  [[nodiscard]] int blocked_fd() const noexcept { return blocked_fd_; }

 private:
  struct Sender {
    UniqueFd socket;
    std::uint16_t port = 0;
  };

  explicit UdpLink(const IpAddress& address) : address_(address) {}
  [[nodiscard]] std::size_t header_room() const noexcept;
  void write_headers(Frame& frame, std::size_t udp_payload, const IpAddress& source, std::uint16_t source_port,
                     std::uint8_t traffic_class) const noexcept;
  [[nodiscard]] int socket_of(std::uint16_t source_port) const noexcept;

  IpAddress address_;
  UniqueFd receive_;
  std::size_t receive_buffer_ = 0;
  std::vector<Sender> senders_;
  int blocked_fd_ = -1;
};

}  // namespace nbx::nccl::plugin
