#include "nccl-glue/wire/bootstrap.hpp"

#include <algorithm>

#include "nccl-glue/wire/little.hpp"

namespace nbx::nccl {

namespace {

// struct sockaddr: the family and the scope are in host order, port and address in network order.
constexpr std::uint16_t family_inet = 2;
constexpr std::uint16_t family_inet6 = 10;

constexpr std::size_t ring_data_proxy = 28;
constexpr std::size_t ring_data_seed = 56;
constexpr std::size_t ring_data_seed_end = 64;

void copy(MutableBytes to, std::size_t at, ConstBytes from) {
  std::ranges::copy(from, to.subspan(at, from.size()).begin());
}

/// The hash that NCCL forms identities with from 2.26 on: two words, bytes eaten eight at a time.
class Hash {
 public:
  void eat(ConstBytes bytes) {
    a_ ^= bytes.size();
    while (!bytes.empty()) {
      std::uint64_t word = 0;
      const std::size_t size = std::min(bytes.size(), sizeof word);
      std::memcpy(&word, bytes.data(), size);
      mix(word);
      bytes = bytes.subspan(size);
    }
  }
  template <std::integral T>
  void eat(T value) {
    std::array<std::byte, sizeof value> bytes;
    store(bytes, 0, value);
    eat(ConstBytes(bytes));
  }
  [[nodiscard]] std::uint64_t digest() const {
    std::uint64_t h = a_;
    h ^= h >> 31U;
    h *= 0xbac3'bd56'2846'de6b;
    h += b_;
    h ^= h >> 32U;
    return h * 0x995a'187a'14e7'b445;
  }

 private:
  void mix(std::uint64_t word) {
    a_ += b_;
    b_ ^= a_;
    a_ ^= a_ >> 31U;
    a_ *= 0x9de6'2bbc'8cef'3ce3;
    b_ ^= b_ >> 32U;
    b_ *= 0x485c'd631'1b59'9e79;
    a_ += word;
  }

  std::uint64_t a_ = 1;
  std::uint64_t b_ = 1;
};

}  // namespace

void put_address(MutableBytes bytes, const SocketAddress& address) {
  const MutableBytes out = bytes.first(socket_address_size);
  std::ranges::fill(out, std::byte{0});
  store(out, 2, swap_if_little(address.port));
  const ConstBytes octets = std::as_bytes(std::span(address.ip.octets));
  if (address.ip.is_v4()) {
    store(out, 0, family_inet);
    copy(out, 4, octets.subspan(12));
  } else {
    store(out, 0, family_inet6);
    copy(out, 8, octets);
  }
}

std::optional<SocketAddress> get_address(ConstBytes bytes) {
  if (bytes.size() < socket_address_size) {
    return std::nullopt;
  }
  SocketAddress address;
  address.port = swap_if_little(load<std::uint16_t>(bytes, 2));
  switch (load<std::uint16_t>(bytes, 0)) {
    case family_inet:
      address.ip = IpAddress::v4(swap_if_little(load<std::uint32_t>(bytes, 4)));
      return address;
    case family_inet6:
      std::memcpy(address.ip.octets.data(), bytes.subspan(8, 16).data(), 16);
      return address;
    default:
      return std::nullopt;
  }
}

std::optional<Root> root_of(const UniqueId& id) {
  const std::optional<SocketAddress> address = get_address(ConstBytes(id).subspan(8));
  if (!address) {
    return std::nullopt;
  }
  return Root{load<std::uint64_t>(id, 0), *address};
}

std::array<std::byte, hello_size> encode(const Hello& hello) {
  std::array<std::byte, hello_size> out{};
  store(out, 0, hello.magic);
  store(out, 8, hello.type);
  return out;
}

std::optional<Hello> decode_hello(ConstBytes bytes) {
  if (bytes.size() < hello_size) {
    return std::nullopt;
  }
  return Hello{load<std::uint64_t>(bytes, 0), load<std::uint32_t>(bytes, 8)};
}

void append_prefix(Bytes& out, std::size_t size) {
  out.resize(out.size() + prefix_size);
  store(MutableBytes(out).last(prefix_size), 0, static_cast<std::int32_t>(size));
}

void append_message(Bytes& out, ConstBytes body) {
  append_prefix(out, body.size());
  out.insert(out.end(), body.begin(), body.end());
}

std::optional<std::int32_t> prefix_of(ConstBytes bytes) {
  if (bytes.size() < prefix_size) {
    return std::nullopt;
  }
  return load<std::int32_t>(bytes, 0);
}

Bytes encode(const Version& v, const CheckIn& check_in) {
  Bytes out(v.check_in_size);
  store(out, 0, check_in.rank);
  store(out, 4, check_in.ranks);
  if (v.two_phase_root) {
    store(out, 12, std::int32_t{1});  // roots; this one has index 0
  }
  put_address(MutableBytes(out).subspan(v.check_in_reply_address), check_in.reply);
  put_address(MutableBytes(out).subspan(v.check_in_ring_info), check_in.ring);
  return out;
}

std::optional<CheckIn> decode_check_in(const Version& v, ConstBytes bytes) {
  if (bytes.size() != v.check_in_size) {
    return std::nullopt;
  }
  const std::optional<SocketAddress> reply = get_address(bytes.subspan(v.check_in_reply_address));
  const std::optional<SocketAddress> ring = get_address(bytes.subspan(v.check_in_ring_info));
  if (!reply || !ring) {
    return std::nullopt;
  }
  return CheckIn{load<std::int32_t>(bytes, 0), load<std::int32_t>(bytes, 4), *reply, *ring};
}

Bytes encode_ring_address(const Version& v, const SocketAddress& ring) {
  Bytes out(v.root_reply_size);
  put_address(out, ring);
  return out;
}

std::optional<SocketAddress> decode_ring_address(const Version& v, ConstBytes bytes) {
  if (bytes.size() != v.root_reply_size) {
    return std::nullopt;
  }
  return get_address(bytes);
}

Bytes encode(const Version& v, const RingData& data) {
  Bytes out(std::max<std::size_t>(v.ring_data_size, ring_data_seed_end));
  put_address(out, data.p2p);
  put_address(MutableBytes(out).subspan(ring_data_proxy), data.proxy);
  store(out, ring_data_seed, data.proxy_seed);
  return out;
}

std::optional<RingData> decode_ring_data(const Version& v, ConstBytes bytes) {
  if (bytes.size() != std::max<std::size_t>(v.ring_data_size, ring_data_seed_end)) {
    return std::nullopt;
  }
  const std::optional<SocketAddress> p2p = get_address(bytes);
  if (!p2p) {
    return std::nullopt;
  }
  // A child that shares its parent's resources fills in the first address only.
  const SocketAddress proxy = get_address(bytes.subspan(ring_data_proxy)).value_or(SocketAddress{});
  return RingData{*p2p, proxy, load<std::uint64_t>(bytes, ring_data_seed)};
}

Bytes encode(const Version& v, const SendHeader& header) {
  Bytes out;
  if (v.two_phase_root) {
    append_prefix(out, 8);
  } else {
    append_prefix(out, 4);
  }
  out.resize(send_header_size(v));
  store(out, 4, header.rank);
  if (!v.two_phase_root) {
    store(out, 8, std::int32_t{4});
  }
  store(MutableBytes(out).last(4), 0, header.tag);
  return out;
}

std::optional<SendHeader> decode_send_header(const Version& v, ConstBytes bytes) {
  if (bytes.size() < send_header_size(v)) {
    return std::nullopt;
  }
  const SendHeader header{load<std::int32_t>(bytes, 4), load<std::int32_t>(bytes, send_header_size(v) - 4)};
  const Bytes expected = encode(v, header);
  return std::ranges::equal(expected, bytes.first(expected.size())) ? std::optional(header) : std::nullopt;
}

Bytes encode(const SplitKey& key) {
  Bytes out(split_key_size);
  store(out, 0, key.key);
  store(out, 4, key.color);
  return out;
}

std::optional<SplitKey> decode_split_key(ConstBytes bytes) {
  if (bytes.size() != split_key_size) {
    return std::nullopt;
  }
  return SplitKey{load<std::int32_t>(bytes, 0), load<std::int32_t>(bytes, 4)};
}

std::uint64_t comm_hash(const UniqueId& id) {
  Hash hash;
  hash.eat(ConstBytes(id));
  return hash.digest();
}

std::uint64_t child_hash(std::uint64_t parent, std::int32_t count, std::int32_t color) {
  Hash hash;
  hash.eat(parent);
  hash.eat(count);
  hash.eat(color);
  return hash.digest();
}

}  // namespace nbx::nccl
