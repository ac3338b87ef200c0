// What NCCL's bootstrap puts on TCP: unique ID, hello, size-prefixed messages, the check-in at the root and its answer,
// the first all-gather and the header of point-to-point messages. Memory images of C structures, little-endian but for
// the inside of socket addresses; padding is zero. Pure: bytes in, values out; what is too short or no address is no
// value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "base/net.hpp"
#include "nccl-glue/wire/version.hpp"

namespace nbx::nccl {

inline constexpr std::size_t unique_id_size = 128;
using UniqueId = std::array<std::byte, unique_id_size>;
using Bytes = std::vector<std::byte>;

/// The sockaddr union of 28 bytes.
struct SocketAddress {
  IpAddress ip;
  std::uint16_t port = 0;

  friend bool operator==(const SocketAddress&, const SocketAddress&) = default;
};
inline constexpr std::size_t socket_address_size = 28;
/// `bytes` is at least socket_address_size long.
void put_address(MutableBytes bytes, const SocketAddress& address);
[[nodiscard]] std::optional<SocketAddress> get_address(ConstBytes bytes);

/// The start of a unique ID: magic and address of the root's listener.
struct Root {
  std::uint64_t magic = 0;
  SocketAddress address;
};
[[nodiscard]] std::optional<Root> root_of(const UniqueId& id);

/// The first bytes of every connecting side.
inline constexpr std::size_t hello_size = 12;
inline constexpr std::uint32_t bootstrap_socket = 1;  // enum ncclSocketType
struct Hello {
  std::uint64_t magic = 0;
  std::uint32_t type = bootstrap_socket;

  friend bool operator==(const Hello&, const Hello&) = default;
};
[[nodiscard]] std::array<std::byte, hello_size> encode(const Hello& hello);
[[nodiscard]] std::optional<Hello> decode_hello(ConstBytes bytes);

/// Messages have their size before them, as an int.
inline constexpr std::size_t prefix_size = 4;
void append_prefix(Bytes& out, std::size_t size);
void append_message(Bytes& out, ConstBytes body);
/// The size in the prefix that `bytes` start with; negative ones are returned as such.
[[nodiscard]] std::optional<std::int32_t> prefix_of(ConstBytes bytes);

/// A rank to the root: where the root shall answer and where the previous rank shall connect.
struct CheckIn {
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  SocketAddress reply;
  SocketAddress ring;

  friend bool operator==(const CheckIn&, const CheckIn&) = default;
};
[[nodiscard]] Bytes encode(const Version& v, const CheckIn& check_in);
[[nodiscard]] std::optional<CheckIn> decode_check_in(const Version& v, ConstBytes bytes);

/// The root to a rank, and between the neighbours of a split: the ring listener of the next rank.
[[nodiscard]] Bytes encode_ring_address(const Version& v, const SocketAddress& ring);
[[nodiscard]] std::optional<SocketAddress> decode_ring_address(const Version& v, ConstBytes bytes);

/// The first all-gather (its block, or from 2.20 to 2.22 the blocks of three). RAS stays zero: it then leaves us alone.
struct RingData {
  SocketAddress p2p;
  SocketAddress proxy;
  std::uint64_t proxy_seed = 0;

  friend bool operator==(const RingData&, const RingData&) = default;
};
[[nodiscard]] Bytes encode(const Version& v, const RingData& data);
[[nodiscard]] std::optional<RingData> decode_ring_data(const Version& v, ConstBytes bytes);

/// What a point-to-point message starts with.
struct SendHeader {
  std::int32_t rank = 0;  // of the sender
  std::int32_t tag = 0;

  friend bool operator==(const SendHeader&, const SendHeader&) = default;
};
/// With its prefixes: one message of 8 bytes, or before two-phase roots two of 4.
[[nodiscard]] Bytes encode(const Version& v, const SendHeader& header);
inline constexpr std::size_t send_header_size(const Version& v) { return v.two_phase_root ? 12 : 16; }
[[nodiscard]] std::optional<SendHeader> decode_send_header(const Version& v, ConstBytes bytes);

// Tags of point-to-point messages.
inline constexpr std::int32_t split_tag = 1 << 29;
inline constexpr std::int32_t handshake_bit = 0x80;

/// What ncclCommSplit gathers.
struct SplitKey {
  std::int32_t key = 0;
  std::int32_t color = -1;
};
inline constexpr std::size_t split_key_size = 8;
[[nodiscard]] Bytes encode(const SplitKey& key);
[[nodiscard]] std::optional<SplitKey> decode_split_key(ConstBytes bytes);

/// commHash of a communicator made from an ID, and of a child (shrink: count 0, color 0).
[[nodiscard]] std::uint64_t comm_hash(const UniqueId& id);
[[nodiscard]] std::uint64_t child_hash(std::uint64_t parent, std::int32_t count, std::int32_t color);

}  // namespace nbx::nccl
