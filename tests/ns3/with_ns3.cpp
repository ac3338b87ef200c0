// The workload in ns-3: point-to-point links with drop-tail queues, UDP over IPv4, static routes. Built by
// tools/compare-ns3, where ns-3 is installed; prints the same lines as with_nbx.cpp.
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

#include <chrono>
#include <cstring>

#include "workload.hpp"

namespace {

using namespace ns3;

constexpr unsigned headers = 2 + 20 + 8;  // PPP, IPv4, UDP

struct Net {
  NodeContainer hosts;
  NodeContainer switches;
  std::vector<Ipv4Address> address;  // of hosts

  Net(unsigned h, unsigned s) : address(h) {
    hosts.Create(h);
    switches.Create(s);
    InternetStackHelper stack;
    Ipv4StaticRoutingHelper routing;
    stack.SetRoutingHelper(routing);
    stack.Install(hosts);
    stack.Install(switches);
    links.SetDeviceAttribute("DataRate", DataRateValue(DataRate(static_cast<std::uint64_t>(workload::link_bps))));
    links.SetChannelAttribute("Delay", TimeValue(NanoSeconds(workload::cable_ns)));
    links.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1000000p"));
    addresses.SetBase("10.0.0.0", "255.255.255.252");
  }
  /// The interface of `a`.
  std::uint32_t connect(Ptr<Node> a, Ptr<Node> b, Ipv4Address* of_a = nullptr) {
    const NetDeviceContainer ends = links.Install(a, b);
    const Ipv4InterfaceContainer interfaces = addresses.Assign(ends);
    TrafficControlHelper().Uninstall(ends);  // the device's queue is the only one
    addresses.NewNetwork();
    if (of_a != nullptr) {
      *of_a = interfaces.GetAddress(0);
    }
    return static_cast<std::uint32_t>(a->GetObject<Ipv4>()->GetInterfaceForDevice(ends.Get(0)));
  }
  static std::uint32_t last_interface(Ptr<Node> node) { return node->GetObject<Ipv4>()->GetNInterfaces() - 1; }
  static void route(Ptr<Node> at, Ipv4Address to, std::uint32_t interface) {
    Ipv4StaticRoutingHelper().GetStaticRouting(at->GetObject<Ipv4>())->AddHostRouteTo(to, interface);
  }

  PointToPointHelper links;
  Ipv4AddressHelper addresses;
};

std::unique_ptr<Net> dumbbell() {
  auto net = std::make_unique<Net>(8, 2);
  std::vector<std::uint32_t> up(8);
  std::vector<std::uint32_t> down(8);
  for (unsigned h = 0; h < 8; ++h) {
    Ptr<Node> edge = net->switches.Get(h < 4 ? 0 : 1);
    up[h] = net->connect(net->hosts.Get(h), edge, &net->address[h]);
    down[h] = Net::last_interface(edge);
  }
  const std::uint32_t across = net->connect(net->switches.Get(0), net->switches.Get(1));
  for (unsigned h = 4; h < 8; ++h) {
    net->route(net->hosts.Get(h - 4), net->address[h], up[h - 4]);
    net->route(net->switches.Get(0), net->address[h], across);
    net->route(net->switches.Get(1), net->address[h], down[h]);
  }
  return net;
}

std::unique_ptr<Net> leaf_spine(const std::vector<workload::Flow>& flows) {
  using namespace workload;
  auto net = std::make_unique<Net>(leaves * hosts_per_leaf, leaves + spines);
  std::vector<std::uint32_t> up(leaves * hosts_per_leaf);
  std::vector<std::uint32_t> down(leaves * hosts_per_leaf);
  for (unsigned h = 0; h < leaves * hosts_per_leaf; ++h) {
    Ptr<Node> leaf = net->switches.Get(h / hosts_per_leaf);
    up[h] = net->connect(net->hosts.Get(h), leaf, &net->address[h]);
    down[h] = Net::last_interface(leaf);
  }
  std::uint32_t to_spine[leaves][spines];
  std::uint32_t to_leaf[leaves][spines];
  for (unsigned l = 0; l < leaves; ++l) {
    for (unsigned s = 0; s < spines; ++s) {
      to_spine[l][s] = net->connect(net->switches.Get(l), net->switches.Get(leaves + s));
      to_leaf[l][s] = Net::last_interface(net->switches.Get(leaves + s));
    }
  }
  for (unsigned h = 0; h < leaves * hosts_per_leaf; ++h) {
    net->route(net->switches.Get(h / hosts_per_leaf), net->address[h], down[h]);
    net->route(net->switches.Get(leaves + h % spines), net->address[h], to_leaf[h / hosts_per_leaf][h % spines]);
  }
  for (const Flow& flow : flows) {
    const unsigned leaf = flow.from / hosts_per_leaf;
    net->route(net->hosts.Get(flow.from), net->address[flow.to], up[flow.from]);
    net->route(net->switches.Get(leaf), net->address[flow.to], to_spine[leaf][flow.to % spines]);
  }
  return net;
}

class Sender {
 public:
  Sender(Ptr<Node> node, Ipv4Address to, std::uint16_t port, workload::Arrivals arrivals, workload::Meter& meter)
      : socket_(Socket::CreateSocket(node, UdpSocketFactory::GetTypeId())), arrivals_(arrivals), meter_(&meter) {
    socket_->Bind();
    socket_->Connect(InetSocketAddress(to, port));
    next();
  }

 private:
  void next() { Simulator::Schedule(NanoSeconds(arrivals_.next()) - Simulator::Now(), &Sender::send, this); }
  void send() {
    meter_->sent(Simulator::Now().GetNanoSeconds());
    socket_->Send(Create<Packet>(workload::packet_bytes - headers));
    next();
  }

  Ptr<Socket> socket_;
  workload::Arrivals arrivals_;
  workload::Meter* meter_;
};

void received(workload::Meter* meter, Ptr<Socket> socket) {
  while (socket->Recv()) {
    meter->received(Simulator::Now().GetNanoSeconds());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool tiers = argc > 1 && std::strcmp(argv[1], "leaf_spine") == 0;
  const auto flows = tiers ? workload::leaf_spine() : workload::dumbbell();
  const auto net = tiers ? leaf_spine(flows) : dumbbell();
  std::vector<workload::Meter> meters(flows.size());
  std::vector<std::unique_ptr<Sender>> senders;
  std::vector<Ptr<Socket>> sinks;
  for (unsigned i = 0; i < flows.size(); ++i) {
    const auto port = static_cast<std::uint16_t>(5000 + i);
    sinks.push_back(Socket::CreateSocket(net->hosts.Get(flows[i].to), UdpSocketFactory::GetTypeId()));
    sinks.back()->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
    sinks.back()->SetRecvCallback(MakeBoundCallback(&received, &meters[i]));
    senders.push_back(std::make_unique<Sender>(net->hosts.Get(flows[i].from), net->address[flows[i].to], port,
                                               workload::Arrivals(i, flows[i].load), meters[i]));
  }
  Simulator::Stop(NanoSeconds(workload::until_ns));
  const auto began = std::chrono::steady_clock::now();
  Simulator::Run();
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::uint64_t packets = 0;
  for (unsigned i = 0; i < flows.size(); ++i) {
    meters[i].print(flows[i]);
    packets += meters[i].packets();
  }
  std::printf("wall %.6f %llu\n", wall, static_cast<unsigned long long>(packets));
  Simulator::Destroy();
  return 0;
}
