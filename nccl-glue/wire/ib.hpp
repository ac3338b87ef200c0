// What NCCL's NET/IB puts on the wire: the listen handle, the side connection, the clear-to-send element, the row of
// sizes and the immediate, for the releases of the version table. Memory images of C structures, little-endian; bytes
// that no release reads are zero. Pure: bytes in, values out; short input is no value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/net.hpp"
#include "nccl-glue/wire/version.hpp"

namespace nbx::nccl::ib {

inline constexpr std::uint64_t net_magic = 0x564a'b9f2'fc4b'9d6c;  // NCCL's own handles all carry it
inline constexpr std::uint32_t socket_type = 4;
inline constexpr std::size_t handle_size = 128;
inline constexpr std::size_t hello_size = 12;
inline constexpr std::size_t ready_size = 4;

inline constexpr std::size_t qps_max = 128;
inline constexpr std::size_t devices_max = 8;  // of any release
inline constexpr std::size_t slots = 256;      // of the clear-to-send FIFO and of the sizes
inline constexpr std::size_t grouped_max = 8;  // receives that share a slot
inline constexpr std::size_t cts_element_size = 64;
inline constexpr std::size_t cts_slot_size = grouped_max * cts_element_size;
inline constexpr std::size_t cts_fifo_size = slots * cts_slot_size;
inline constexpr std::size_t size_entry = 4;  // of the sizes of grouped receives: int32 at the start of each row

/// Size of the receiver's area of sizes.
[[nodiscard]] constexpr std::size_t sizes_area_size(const Version& v) { return slots * v.completion_row; }

/// enum ibv_mtu and bytes.
[[nodiscard]] std::optional<std::uint32_t> mtu_bytes(std::uint32_t code);
[[nodiscard]] std::uint32_t mtu_code(std::uint32_t bytes);

/// Where the receiver's side connection listens, and what the hello must say.
struct ListenHandle {
  IpAddress address;
  std::uint16_t port = 0;
  std::uint64_t magic = net_magic;

  friend bool operator==(const ListenHandle&, const ListenHandle&) = default;
};
[[nodiscard]] std::array<std::byte, handle_size> encode(const ListenHandle& handle);
[[nodiscard]] std::optional<ListenHandle> decode_handle(ConstBytes bytes);

/// The first bytes of the connecting side.
struct Hello {
  std::uint64_t magic = net_magic;
  std::uint32_t type = socket_type;

  friend bool operator==(const Hello&, const Hello&) = default;
};
[[nodiscard]] std::array<std::byte, hello_size> encode(const Hello& hello);
[[nodiscard]] std::optional<Hello> decode_hello(ConstBytes bytes);

/// Each side's devices, before the metadata. Only the number counts: the queue pairs are multiplied by the larger.
struct DeviceList {
  std::int32_t ndevs = 1;
  std::array<std::int32_t, devices_max> devs{};

  friend bool operator==(const DeviceList&, const DeviceList&) = default;
};
/// 0 when the release sends none.
[[nodiscard]] std::size_t device_list_size(const Version& v);
[[nodiscard]] std::vector<std::byte> encode(const Version& v, const DeviceList& list);
[[nodiscard]] std::optional<DeviceList> decode_device_list(const Version& v, ConstBytes bytes);

struct QpRecord {
  std::uint32_t qpn = 0;
  std::uint32_t ece_vendor = 0;
  std::uint32_t ece_options = 0;
  std::uint32_t ece_mask = 0;
  std::int32_t ece_supported = 0;
  std::int32_t device = 0;  // index of its DeviceRecord

  friend bool operator==(const QpRecord&, const QpRecord&) = default;
};

enum class LinkLayer : std::uint8_t { infiniband = 1, ethernet = 2 };

struct DeviceRecord {
  std::uint32_t lid = 0;
  std::uint8_t port = 1;
  std::uint32_t mtu_code = 0;
  LinkLayer link_layer = LinkLayer::ethernet;
  IpAddress gid;
  std::uint32_t rkey = 0;  // of the memory at Metadata::address

  friend bool operator==(const DeviceRecord&, const DeviceRecord&) = default;
};

/// One side's end of a connection. Only the records in use are kept; what a peer claims is not checked here beyond
/// what the layout can hold.
struct Metadata {
  std::vector<QpRecord> qps;          // up to the first without a number
  std::vector<DeviceRecord> devices;  // the first `ndevs`, at most what the layout holds
  std::string name;
  std::uint64_t address = 0;  // sender: its clear-to-send FIFO; receiver: its area of sizes
  std::int32_t ndevs = 0;
  std::int32_t traffic_class = 0;
  std::int32_t service_level = 0;

  friend bool operator==(const Metadata&, const Metadata&) = default;
};
[[nodiscard]] std::vector<std::byte> encode(const Version& v, const Metadata& metadata);
[[nodiscard]] std::optional<Metadata> decode_metadata(const Version& v, ConstBytes bytes);

/// One announced receive.
struct ClearToSend {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::array<std::uint32_t, devices_max> rkeys{};  // by the receiver's device; the release knows the first cts_rkeys
  std::uint32_t grouped = 1;                       // how many elements this slot has
  std::uint32_t tag = 0;
  std::uint64_t sequence = 0;  // from 1; lands last

  friend bool operator==(const ClearToSend&, const ClearToSend&) = default;
};
[[nodiscard]] std::array<std::byte, cts_element_size> encode(const Version& v, const ClearToSend& element);
[[nodiscard]] std::optional<ClearToSend> decode_clear_to_send(const Version& v, ConstBytes bytes);

/// The immediate as an integer whose big-endian form is on the wire (what rdma::SendWr::imm_data wants), and back.
[[nodiscard]] std::uint32_t immediate_of(const Version& v, std::uint32_t size);
[[nodiscard]] std::uint32_t size_of_immediate(const Version& v, std::uint32_t immediate);

/// The part of a message of `size` bytes that goes over the i-th of `parts` queue pairs: multiples of 128 bytes, the
/// last ones get what is left.
struct Part {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
};
[[nodiscard]] Part split_part(std::uint32_t size, std::uint32_t parts, std::uint32_t i);

}  // namespace nbx::nccl::ib
