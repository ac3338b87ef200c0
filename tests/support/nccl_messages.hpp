// What NCCL's NET/IB sent in a capture without loss, put together from packets: per connection the data messages and
// the clear-to-send elements that asked for them.
#pragma once

#include <compare>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/pcap_file.hpp"
#include "wire/parse.hpp"
#include "wire/roce.hpp"

namespace nbx::test {

struct NcclMessage {
  std::uint64_t address = 0;
  Bytes data;
};

struct NcclClearToSend {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
};

/// Data from one host to another over one queue pair, in order, with the receiver's elements in order.
struct NcclFlow {
  std::uint32_t from = 0;  // last octet of the host's address
  std::uint32_t to = 0;
  std::vector<NcclMessage> messages;
  std::vector<NcclClearToSend> clear_to_send;
};

/// The elements of a flow are those of the queue pair, the other way, whose first one has the first message's address.
inline std::vector<NcclFlow> nccl_flows(const std::vector<PcapRecord>& records) {
  struct Key {
    std::uint32_t from, to;
    Qpn qpn;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, NcclFlow> data;
  std::map<Key, std::vector<NcclClearToSend>> elements;
  std::map<Key, NcclMessage> open;
  for (const PcapRecord& record : records) {
    wire::Parsed p;
    if (wire::parse(record.bytes, {}, p) != Drop::none || p.kind != wire::FrameKind::roce_v2) {
      continue;
    }
    const auto octet = [&](std::size_t at) {
      return std::to_integer<std::uint32_t>(record.bytes.at(p.l3_offset + at));
    };
    const Key key{octet(15), octet(19), p.dest_qpn};
    const ConstBytes payload = wire::payload(record.bytes, p);
    NcclMessage& message = open[key];
    constexpr std::uint8_t first = 6, last = 8, last_imm = 9, only = 10, only_imm = 11;  // RC RDMA WRITE
    if (p.opcode < first || p.opcode > only_imm) {
      continue;
    }
    if (p.opcode == first || p.opcode >= only) {
      const auto* reth = overlay<wire::Reth>(ConstBytes{record.bytes}.subspan(p.bth_offset + 12U));
      message = {reth->virtual_address.value(), {}};
    }
    message.data.insert(message.data.end(), payload.begin(), payload.end());
    if (p.opcode == last_imm || p.opcode == only_imm) {
      data.try_emplace(key, NcclFlow{key.from, key.to, {}, {}}).first->second.messages.push_back(message);
    } else if (p.opcode == only && payload.size() == 64) {
      NcclClearToSend element;
      std::memcpy(&element.address, payload.data(), 8);
      std::memcpy(&element.size, payload.data() + 8, 8);
      elements[key].push_back(element);
    } else if (p.opcode == last || p.opcode == only) {
      throw std::runtime_error("a write that is neither data nor clear to send");
    }
  }
  std::vector<NcclFlow> flows;
  for (auto& [key, flow] : data) {
    for (const auto& [back, list] : elements) {
      if (back.from == key.to && back.to == key.from && list.front().address == flow.messages.front().address) {
        flow.clear_to_send = list;
      }
    }
    flows.push_back(flow);
  }
  return flows;
}

}  // namespace nbx::test
