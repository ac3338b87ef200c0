#include "port/ethdev_port.hpp"

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>

#include <algorithm>

#include "frame/buffer.hpp"
#include "port/vhost_socket.hpp"
#include "port/xdp_steering.hpp"

namespace nbx::port {
namespace {

std::string reason(int negative_errno) { return rte_strerror(-negative_errno); }

std::optional<std::uint16_t> find_port(std::string name) {
  std::uint16_t id = 0;
  if (rte_eth_dev_get_port_by_name(name.c_str(), &id) == 0) {
    return id;
  }
  // DPDK names a PCI function with its domain; people leave 0000 out.
  if (rte_eth_dev_get_port_by_name(("0000:" + name).c_str(), &id) == 0) {
    return id;
  }
  return std::nullopt;
}

/// DPDK's own words say more than its error codes.
std::string words_or(Eal& eal, const std::string& otherwise) {
  std::string words = eal.take_first_words();
  return words.empty() ? otherwise : words;
}

Error not_found(Eal& eal, const std::string& device, const std::string& cause) {
  const char* remedy = is_pci_address(device)
                           ? "; bind it to vfio-pci with dpdk-devbind.py (mlx5 stays with its kernel driver)"
                           : "; virtual devices are written DRIVERn,KEY=VALUE,… as in "
                             "net_vhost0,iface=/run/nbx/p0.sock, and their driver must be installed (librte-net-*)";
  return {"device '" + device + "': " + words_or(eal, cause) + remedy};
}

}  // namespace

Result<std::unique_ptr<EthdevPort>> EthdevPort::open(Eal& eal, const EthdevConfig& config, MbufSource& source) {
  const std::string& device = config.device;
  const std::string name = device.substr(0, device.find(','));
  if (const auto socket = vhost_listening_path(device)) {
    if (auto error = make_way(*socket)) {
      return *error;
    }
  }
  const auto interface = xdp_interface(device);
  std::optional<XdpProgram> program;
  std::string arguments = device;
  if (interface) {
    auto made = XdpProgram::create_for(*interface);
    if (!made) {
      return Error{"device '" + device + "': " + made.error().message};
    }
    program = std::move(*made);
    arguments += ",xdp_prog=" + program->path();
  }
  static_cast<void>(eal.take_first_words());
  if (!is_pci_address(device)) {  // PCI functions were probed when DPDK started
    if (find_port(name)) {
      return Error{"device '" + name + "' is named twice; every port needs a device of its own"};
    }
    if (const int result = rte_dev_probe(arguments.c_str()); result < 0) {
      return not_found(eal, device, reason(result));
    }
  }
  const auto id = find_port(name);
  if (!id) {
    return not_found(eal, device, "no such Ethernet device");
  }
  std::unique_ptr<EthdevPort> port(new EthdevPort(*id));
  if (const auto error = port->configure(config, source)) {
    std::string message = "device '" + device + "': " + error->message;
    if (const std::string words = eal.take_first_words(); !words.empty()) {
      message += " (" + words + ")";
    }
    return Error{message};
  }
  if (interface) {
    if (const auto error = steer(*interface, config.ghosts)) {
      return Error{"device '" + device + "': " + error->message};
    }
  }
  return port;
}

std::optional<Error> EthdevPort::configure(const EthdevConfig& config, MbufSource& source) {
  rte_eth_dev_info info{};
  if (const int result = rte_eth_dev_info_get(id_, &info); result != 0) {
    return Error{"cannot ask the device for its limits: " + reason(result)};
  }
  driver_ = info.driver_name;
  const std::uint32_t overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
  const std::uint32_t mtu_max = std::min<std::uint32_t>(info.max_mtu, info.max_rx_pktlen - overhead);
  if (config.mtu > mtu_max && is_pci_address(config.device)) {
    return Error{"takes an MTU of at most " + std::to_string(mtu_max) + ", the cluster file asks for " +
                 std::to_string(config.mtu)};
  }
  // Virtual devices state small limits and keep to none.
  rte_eth_conf conf{};
  conf.rxmode.mtu = std::min(config.mtu, mtu_max);
  if (const int result = rte_eth_dev_configure(id_, 1, 1, &conf); result != 0) {
    return Error{"refused its configuration: " + reason(result)};
  }
  std::uint16_t rx = buffer::descriptors;
  std::uint16_t tx = buffer::descriptors;
  if (const int result = rte_eth_dev_adjust_nb_rx_tx_desc(id_, &rx, &tx); result != 0) {
    return Error{"refused its queue sizes: " + reason(result)};
  }
  const auto numa = static_cast<unsigned>(rte_eth_dev_socket_id(id_));
  if (const int result = rte_eth_rx_queue_setup(id_, 0, rx, numa, nullptr, source.pool()); result != 0) {
    return Error{"receive queue: " + reason(result)};
  }
  if (const int result = rte_eth_tx_queue_setup(id_, 0, tx, numa, nullptr); result != 0) {
    return Error{"transmit queue: " + reason(result)};
  }
  if (const int result = rte_eth_dev_start(id_); result != 0) {
    return Error{"did not start: " + reason(result)};
  }
  // Ghosts have MACs of their own; virtual devices that cannot be promiscuous are anyway.
  if (const int result = rte_eth_promiscuous_enable(id_); result != 0 && result != -ENOTSUP) {
    return Error{"cannot be promiscuous, which ghosts' own MAC addresses need: " + reason(result)};
  }
  return std::nullopt;
}

EthdevPort::~EthdevPort() {
  while (pending_count_ != 0) {
    rte_pktmbuf_free(pending_[pending_first_]);
    pending_first_ = (pending_first_ + 1) % pending_max;
    --pending_count_;
  }
  rte_eth_dev_info info{};
  const bool known = rte_eth_dev_info_get(id_, &info) == 0;
  rte_eth_dev_stop(id_);
  rte_eth_dev_close(id_);
  if (known && info.device != nullptr) {
    rte_dev_remove(info.device);
  }
}

std::size_t EthdevPort::receive(FrameList& burst, Instant now) noexcept {
  std::array<rte_mbuf*, burst_max> mbufs;
  const std::uint16_t n = rte_eth_rx_burst(id_, 0, mbufs.data(), burst_max);
  std::size_t oversize = 0;
  for (std::uint16_t i = 0; i < n; ++i) {
    if (Frame* frame = frame_of_received(*mbufs[i], now)) {
      burst.push_back(*frame);
    } else {
      ++oversize;
    }
  }
  return oversize;
}

bool EthdevPort::transmit(FrameList& frames, FrameList& refused, Instant now) noexcept {
  bool took_any = false;
  do {
    if (pending_count_ == 0) {
      last_taken_ = now;  // patience begins with the first frame that has to wait
    }
    queue(frames);
    if (send_queued() == 0) {
      break;
    }
    took_any = true;
    last_taken_ = now;
  } while (pending_count_ != 0 || !frames.empty());
  refused.splice_back(frames);
  if (pending_count_ != 0 && now - last_taken_ > patience) {
    take_pending(refused);
  }
  return took_any;
}

void EthdevPort::queue(FrameList& frames) noexcept {
  while (pending_count_ < pending_max && !frames.empty()) {
    pending_[(pending_first_ + pending_count_) % pending_max] = &mbuf_to_send(*frames.pop_front());
    ++pending_count_;
  }
}

std::size_t EthdevPort::send_queued() noexcept {
  if (pending_count_ == 0) {
    return 0;
  }
  const std::size_t contiguous = std::min({pending_count_, pending_max - pending_first_, std::size_t{burst_max}});
  const std::size_t taken = rte_eth_tx_burst(id_, 0, &pending_[pending_first_], static_cast<std::uint16_t>(contiguous));
  pending_first_ = (pending_first_ + taken) % pending_max;
  pending_count_ -= taken;
  return taken;
}

void EthdevPort::take_pending(FrameList& out) noexcept {
  while (pending_count_ != 0) {
    out.push_back(frame_of(*pending_[pending_first_]));
    pending_first_ = (pending_first_ + 1) % pending_max;
    --pending_count_;
  }
}

Link EthdevPort::link() const noexcept {
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(id_, &link) != 0) {
    return {};
  }
  const bool known = link.link_speed != RTE_ETH_SPEED_NUM_NONE && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN;
  return {.up = link.link_status == RTE_ETH_LINK_UP, .speed = known ? BitRate::mbps(link.link_speed) : BitRate{}};
}

}  // namespace nbx::port
