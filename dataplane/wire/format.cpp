// Text from what the parser understood; fields that it did not reach are not printed.
#include "wire/format.hpp"

#include <cstdarg>
#include <cstdio>

#include "wire/ethernet.hpp"
#include "wire/ip.hpp"
#include "wire/mac_control.hpp"
#include "wire/mad.hpp"
#include "wire/roce.hpp"

namespace nbx::wire {
namespace {

__attribute__((format(printf, 2, 3))) void append(std::string& text, const char* pattern, ...) {
  std::array<char, 160> buffer{};
  std::va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(buffer.data(), buffer.size(), pattern, arguments);
  va_end(arguments);
  text += buffer.data();
}

std::string_view kind_name(FrameKind kind) {
  switch (kind) {
    case FrameKind::unparsed:
      return "unparsed";
    case FrameKind::roce_v2:
      return "RoCEv2";
    case FrameKind::roce_v1:
      return "RoCEv1";
    case FrameKind::arp:
      return "ARP";
    case FrameKind::icmp_echo:
      return "echo request";
    case FrameKind::nd_solicit:
      return "neighbour solicitation";
    case FrameKind::nd_advert:
      return "neighbour advertisement";
    case FrameKind::pfc:
      return "PFC";
    case FrameKind::pause:
      return "PAUSE";
    case FrameKind::ip_other:
      return "IP";
    case FrameKind::ether_other:
      return "Ethernet";
  }
  return {};
}

void append_aeth(std::string& text, const Aeth& aeth) {
  const unsigned value = aeth.syndrome & syndrome::value_mask;
  switch (aeth.syndrome & syndrome::type_mask) {
    case syndrome::ack:
      append(text, " ack credits %u", value);
      break;
    case syndrome::rnr_nak:
      append(text, " rnr_nak timer %u", value);
      break;
    case syndrome::nak:
      append(text, " nak %u", value);
      break;
    default:
      append(text, " syndrome 0x%02x", aeth.syndrome);
      break;
  }
  append(text, " msn %u", aeth.msn.value());
}

void append_extensions(std::string& text, ConstBytes frame, const Parsed& p) {
  const OpcodeTraits& op = p.op();
  if (op.has(ext::deth)) {
    const auto& deth = extension<Deth>(frame, p, ext::deth);
    append(text, " source_qp 0x%06x qkey 0x%08x", deth.source_qp.value(), deth.qkey.value());
  }
  if (op.has(ext::reth)) {
    const auto& reth = extension<Reth>(frame, p, ext::reth);
    append(text, " va 0x%016llx rkey 0x%08x dma_length %u",
           static_cast<unsigned long long>(reth.virtual_address.value()), reth.rkey.value(), reth.dma_length.value());
  }
  if (op.has(ext::atomiceth)) {
    const auto& atomic = extension<AtomicEth>(frame, p, ext::atomiceth);
    append(text, " va 0x%016llx rkey 0x%08x swap_or_add 0x%llx compare 0x%llx",
           static_cast<unsigned long long>(atomic.virtual_address.value()), atomic.rkey.value(),
           static_cast<unsigned long long>(atomic.swap_or_add.value()),
           static_cast<unsigned long long>(atomic.compare.value()));
  }
  if (op.has(ext::aeth)) {
    append_aeth(text, extension<Aeth>(frame, p, ext::aeth));
  }
  if (op.has(ext::atomicacketh)) {
    append(text, " original 0x%llx",
           static_cast<unsigned long long>(extension<AtomicAckEth>(frame, p, ext::atomicacketh).original.value()));
  }
  if (op.has(ext::immdt)) {
    append(text, " immediate 0x%08x", extension<ImmDt>(frame, p, ext::immdt).data.value());
  }
  if (op.has(ext::ieth)) {
    append(text, " invalidate 0x%08x", extension<Ieth>(frame, p, ext::ieth).rkey.value());
  }
}

void append_roce(std::string& text, ConstBytes frame, const Parsed& p) {
  if (p.bth_offset == 0 || p.bth_offset + sizeof(Bth) + icrc_size > p.end_offset) {
    return;
  }
  if (p.op().known()) {
    append(text, " %.*s", static_cast<int>(p.op().name.size()), p.op().name.data());
  } else {
    append(text, " opcode 0x%02x", p.opcode);
  }
  append(text, " qp 0x%06x psn %u", p.dest_qpn.value, p.psn.value);
  text += p.ack_requested ? " ack_request" : "";
  text += p.solicited ? " solicited" : "";
  text += p.becn ? " becn" : "";
  text += p.selective_repeat ? " selective_repeat" : "";
  if (p.payload_offset == 0 || p.payload_offset + icrc_size > p.end_offset) {
    return;
  }
  append_extensions(text, frame, p);
  if (p.payload_size != 0) {
    append(text, " payload %u", p.payload_size);
  }
  if (p.op_class == OpcodeClass::cm) {
    if (const auto cm = decode_cm_header(payload(frame, p))) {
      append(text, " CM %.*s", static_cast<int>(name(cm->attribute).size()), name(cm->attribute).data());
    }
  }
}

void append_ip(std::string& text, ConstBytes frame, const Parsed& p) {
  if (p.l4_offset == 0) {
    return;
  }
  text += ' ' + to_string(source_ip(frame, p)) + " > " + to_string(destination_ip(frame, p));
  if (p.traffic_class != 0) {
    append(text, " tc 0x%02x", p.traffic_class);
  }
}

void append_arp(std::string& text, ConstBytes frame, const Parsed& p) {
  const auto& arp = *overlay<ArpPacket>(frame.subspan(p.l3_offset));
  append(text, " operation %u ", arp.operation.value());
  text += to_string(arp.sender_mac) + ' ' + to_string(IpAddress::v4(arp.sender_ip.value())) + " > " +
          to_string(IpAddress::v4(arp.target_ip.value()));
}

void append_pfc(std::string& text, ConstBytes frame, const Parsed& p) {
  const auto& pfc = *overlay<PfcControl>(frame.subspan(p.l3_offset));
  for (unsigned i = 0; i < priorities; ++i) {
    if (pfc.enabled(i)) {
      append(text, " %u:%u", i, pfc.quanta[i].value());
    }
  }
}

/// The parser names these kinds only when the frame holds all of their fields.
void append_kind(std::string& text, ConstBytes frame, const Parsed& p) {
  switch (p.kind) {
    case FrameKind::arp:
      append_arp(text, frame, p);
      break;
    case FrameKind::pfc:
      append_pfc(text, frame, p);
      break;
    case FrameKind::pause:
      append(text, " %u", overlay<PauseControl>(frame.subspan(p.l3_offset))->quanta.value());
      break;
    case FrameKind::nd_solicit:
    case FrameKind::nd_advert:
      text += " target " + to_string(overlay<NeighborMessage>(frame.subspan(p.l4_offset))->target);
      break;
    case FrameKind::roce_v2:
    case FrameKind::roce_v1:
    case FrameKind::icmp_echo:
    case FrameKind::ip_other:
    case FrameKind::ether_other:
    case FrameKind::unparsed:
      break;
  }
}

}  // namespace

std::string format(ConstBytes frame) {
  Parsed p;
  const Drop verdict = parse(frame, {}, p);
  return format(frame, p, verdict);
}

std::string format(ConstBytes frame, const Parsed& p, Drop verdict) {
  std::string text;
  if (frame.size() >= sizeof(EthernetHeader)) {
    text += to_string(source_mac(frame)) + " > " + to_string(destination_mac(frame)) + ' ';
  }
  if (p.vlan_tci != 0) {
    append(text, "vlan %u priority %u ", p.vlan_tci & 0x0fffU, p.vlan_tci >> 13U);
  }
  text += kind_name(p.kind);
  append_ip(text, frame, p);
  if (p.kind == FrameKind::roce_v2) {
    append_roce(text, frame, p);
  }
  append_kind(text, frame, p);
  append(text, " size %zu", frame.size());
  if (verdict != Drop::none) {
    text += " ! ";
    text += nbx::name(verdict);
  }
  return text;
}

}  // namespace nbx::wire
