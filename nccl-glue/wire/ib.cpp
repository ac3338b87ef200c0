#include "nccl-glue/wire/ib.hpp"

#include <algorithm>
#include <bit>

#include "nccl-glue/wire/little.hpp"

namespace nbx::nccl::ib {

namespace {

// struct sockaddr in the handle: family and IPv6 scope in host order, ports and addresses in network order.
constexpr std::uint16_t family_inet = 2;
constexpr std::uint16_t family_inet6 = 10;
constexpr std::size_t handle_magic_at = 32;

constexpr std::size_t qp_record_size = 24;
constexpr std::size_t device_record_size = 56;

/// Where the release keeps the fields of a clear-to-send element behind the keys.
struct ElementLayout {
  explicit constexpr ElementLayout(const Version& v)
      : grouped(v.cts_rkey_offset + v.cts_rkeys * std::size_t{4}), tag(grouped + 4), sequence((tag + 4 + 7) / 8 * 8) {}

  std::size_t grouped;
  std::size_t tag;
  std::size_t sequence;
};

void put(MutableBytes out, const QpRecord& qp) {
  store(out, 0, qp.qpn);
  store(out, 4, qp.ece_vendor);
  store(out, 8, qp.ece_options);
  store(out, 12, qp.ece_mask);
  store(out, 16, qp.ece_supported);
  store(out, 20, qp.device);
}

QpRecord get_qp(ConstBytes in) {
  return {.qpn = load<std::uint32_t>(in, 0),
          .ece_vendor = load<std::uint32_t>(in, 4),
          .ece_options = load<std::uint32_t>(in, 8),
          .ece_mask = load<std::uint32_t>(in, 12),
          .ece_supported = load<std::int32_t>(in, 16),
          .device = load<std::int32_t>(in, 20)};
}

void put(MutableBytes out, const DeviceRecord& device) {
  store(out, 0, device.lid);
  store(out, 4, device.port);
  store(out, 8, device.mtu_code);
  store(out, 12, static_cast<std::uint8_t>(device.link_layer));
  std::ranges::copy(std::as_bytes(std::span{device.gid.octets}), out.subspan(16).begin());
  store(out, 32, device.rkey);
}

DeviceRecord get_device(ConstBytes in) {
  DeviceRecord device{.lid = load<std::uint32_t>(in, 0),
                      .port = load<std::uint8_t>(in, 4),
                      .mtu_code = load<std::uint32_t>(in, 8),
                      .link_layer = static_cast<LinkLayer>(load<std::uint8_t>(in, 12)),
                      .gid = {},
                      .rkey = load<std::uint32_t>(in, 32)};
  std::ranges::copy(in.subspan(16, 16), std::as_writable_bytes(std::span{device.gid.octets}).begin());
  return device;
}

}  // namespace

std::optional<std::uint32_t> mtu_bytes(std::uint32_t code) {
  return code >= 1 && code <= 5 ? std::optional{128U << code} : std::nullopt;
}

std::uint32_t mtu_code(std::uint32_t bytes) { return static_cast<std::uint32_t>(std::bit_width(bytes)) - 8; }

std::array<std::byte, handle_size> encode(const ListenHandle& handle) {
  std::array<std::byte, handle_size> out{};
  Be16 port;
  port = handle.port;
  const auto octets = std::as_bytes(std::span{handle.address.octets});
  std::ranges::copy(std::as_bytes(std::span{port.raw}), out.begin() + 2);
  if (handle.address.is_v4()) {
    store(MutableBytes{out}, 0, family_inet);
    std::ranges::copy(octets.last(4), out.begin() + 4);
  } else {
    store(MutableBytes{out}, 0, family_inet6);
    std::ranges::copy(octets, out.begin() + 8);
  }
  store(MutableBytes{out}, handle_magic_at, handle.magic);
  return out;
}

std::optional<ListenHandle> decode_handle(ConstBytes bytes) {
  if (bytes.size() < handle_size) {
    return std::nullopt;
  }
  const auto family = load<std::uint16_t>(bytes, 0);
  ListenHandle handle{.address = {},
                      .port = overlay<Be16>(bytes.subspan(2))->value(),
                      .magic = load<std::uint64_t>(bytes, handle_magic_at)};
  if (family == family_inet) {
    handle.address = IpAddress::v4(overlay<Be32>(bytes.subspan(4))->value());
  } else if (family == family_inet6) {
    std::ranges::copy(bytes.subspan(8, 16), std::as_writable_bytes(std::span{handle.address.octets}).begin());
  } else {
    return std::nullopt;
  }
  return handle;
}

std::array<std::byte, hello_size> encode(const Hello& hello) {
  std::array<std::byte, hello_size> out{};
  store(MutableBytes{out}, 0, hello.magic);
  store(MutableBytes{out}, 8, hello.type);
  return out;
}

std::optional<Hello> decode_hello(ConstBytes bytes) {
  if (bytes.size() < hello_size) {
    return std::nullopt;
  }
  return Hello{.magic = load<std::uint64_t>(bytes, 0), .type = load<std::uint32_t>(bytes, 8)};
}

std::size_t device_list_size(const Version& v) {
  return v.ib_device_list ? sizeof(std::int32_t) * (1 + std::size_t{v.ib_devices_max}) : 0;
}

std::vector<std::byte> encode(const Version& v, const DeviceList& list) {
  std::vector<std::byte> out(device_list_size(v));
  if (!out.empty()) {
    store(MutableBytes{out}, 0, list.ndevs);
    for (std::size_t i = 0; i < v.ib_devices_max; ++i) {
      store(MutableBytes{out}, 4 + 4 * i, list.devs[i]);
    }
  }
  return out;
}

std::optional<DeviceList> decode_device_list(const Version& v, ConstBytes bytes) {
  if (!v.ib_device_list || bytes.size() < device_list_size(v)) {
    return std::nullopt;
  }
  DeviceList list{.ndevs = load<std::int32_t>(bytes, 0), .devs = {}};
  for (std::size_t i = 0; i < v.ib_devices_max; ++i) {
    list.devs[i] = load<std::int32_t>(bytes, 4 + 4 * i);
  }
  return list;
}

std::vector<std::byte> encode(const Version& v, const Metadata& metadata) {
  std::vector<std::byte> bytes(v.ib_metadata_size);
  const MutableBytes out{bytes};
  for (std::size_t i = 0; i < std::min(metadata.qps.size(), qps_max); ++i) {
    put(out.subspan(i * qp_record_size), metadata.qps[i]);
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(metadata.devices.size(), v.ib_devices_max); ++i) {
    put(out.subspan(v.ib_devices + i * device_record_size), metadata.devices[i]);
  }
  const auto name = std::as_bytes(std::span{metadata.name});
  std::ranges::copy(name.first(std::min<std::size_t>(name.size(), v.ib_name_size - 1U)),
                    out.subspan(v.ib_name).begin());
  store(out, v.ib_address, metadata.address);
  store(out, v.ib_ndevs, metadata.ndevs);
  if (v.ib_traffic_class != absent) {
    store(out, v.ib_traffic_class, metadata.traffic_class);
    store(out, v.ib_traffic_class + sizeof(std::int32_t), metadata.service_level);
  }
  return bytes;
}

std::optional<Metadata> decode_metadata(const Version& v, ConstBytes bytes) {
  if (bytes.size() < v.ib_metadata_size) {
    return std::nullopt;
  }
  Metadata metadata;
  metadata.address = load<std::uint64_t>(bytes, v.ib_address);
  metadata.ndevs = load<std::int32_t>(bytes, v.ib_ndevs);
  if (v.ib_traffic_class != absent) {
    metadata.traffic_class = load<std::int32_t>(bytes, v.ib_traffic_class);
    metadata.service_level = load<std::int32_t>(bytes, v.ib_traffic_class + sizeof(std::int32_t));
  }
  for (std::size_t i = 0; i < qps_max; ++i) {
    const QpRecord qp = get_qp(bytes.subspan(i * qp_record_size, qp_record_size));
    if (qp.qpn == 0) {
      break;
    }
    metadata.qps.push_back(qp);
  }
  const std::int32_t devices = std::clamp<std::int32_t>(metadata.ndevs, 0, v.ib_devices_max);
  for (std::size_t i = 0; i < static_cast<std::size_t>(devices); ++i) {
    metadata.devices.push_back(get_device(bytes.subspan(v.ib_devices + i * device_record_size, device_record_size)));
  }
  for (const std::byte c : bytes.subspan(v.ib_name, v.ib_name_size)) {
    if (c == std::byte{0}) {
      break;
    }
    metadata.name += static_cast<char>(c);
  }
  return metadata;
}

std::array<std::byte, cts_element_size> encode(const Version& v, const ClearToSend& element) {
  std::array<std::byte, cts_element_size> bytes{};
  const MutableBytes out{bytes};
  const ElementLayout layout{v};
  store(out, 0, element.address);
  if (v.cts_size_64bit) {
    store(out, 8, element.size);
  } else {
    store(out, 8, static_cast<std::uint32_t>(element.size));
  }
  for (std::size_t i = 0; i < v.cts_rkeys; ++i) {
    store(out, v.cts_rkey_offset + 4 * i, element.rkeys[i]);
  }
  store(out, layout.grouped, element.grouped);
  store(out, layout.tag, element.tag);
  store(out, layout.sequence, element.sequence);
  return bytes;
}

std::optional<ClearToSend> decode_clear_to_send(const Version& v, ConstBytes bytes) {
  if (bytes.size() < cts_element_size) {
    return std::nullopt;
  }
  const ElementLayout layout{v};
  ClearToSend element{.address = load<std::uint64_t>(bytes, 0),
                      .size = v.cts_size_64bit ? load<std::uint64_t>(bytes, 8) : load<std::uint32_t>(bytes, 8),
                      .rkeys = {},
                      .grouped = load<std::uint32_t>(bytes, layout.grouped),
                      .tag = load<std::uint32_t>(bytes, layout.tag),
                      .sequence = load<std::uint64_t>(bytes, layout.sequence)};
  for (std::size_t i = 0; i < v.cts_rkeys; ++i) {
    element.rkeys[i] = load<std::uint32_t>(bytes, v.cts_rkey_offset + 4 * i);
  }
  return element;
}

std::uint32_t immediate_of(const Version& v, std::uint32_t size) {
  return v.imm_network_order ? size : __builtin_bswap32(size);
}

std::uint32_t size_of_immediate(const Version& v, std::uint32_t immediate) { return immediate_of(v, immediate); }

Part split_part(std::uint32_t size, std::uint32_t parts, std::uint32_t i) {
  constexpr std::uint64_t unit = 128;
  const std::uint64_t whole = size;
  const std::uint64_t chunk = ((whole + parts - 1) / parts + unit - 1) / unit * unit;
  const std::uint64_t offset = std::min(whole, chunk * i);
  return {.offset = static_cast<std::uint32_t>(offset),
          .size = static_cast<std::uint32_t>(std::min(chunk, whole - offset))};
}

}  // namespace nbx::nccl::ib
