// The records of protocol.hpp as bytes. Bodies are memory images without padding, so that encoding is a copy; decoding
// checks size, kind and every field that a reader would index or switch on, because the other end is only a TCP peer.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "nccl-glue/announce/protocol.hpp"

namespace nbx::nccl::announce {

static_assert(std::endian::native == std::endian::little, "records are memory images");

template <class T>
concept Body = std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>;

inline constexpr std::size_t header_size = 8;  // size, kind
inline constexpr std::size_t text_size_max = record_size_max - sizeof(std::uint32_t);

/// A complete record. A text longer than a record can hold is cut.
[[nodiscard]] std::vector<std::byte> encode(Kind kind, ConstBytes body);
[[nodiscard]] std::vector<std::byte> encode(Kind kind, std::string_view text);
template <Body T>
[[nodiscard]] std::vector<std::byte> encode(Kind kind, const T& body) {
  return encode(kind, ConstBytes(std::as_bytes(std::span(&body, 1))));
}

/// A record that passed the checks; `body` points into the decoder until its next call.
struct Record {
  Kind kind{};
  ConstBytes body;

  /// The body as the structure that protocol.hpp names beside the kind.
  template <Body T>
  [[nodiscard]] T as() const {
    T value{};
    std::memcpy(&value, body.first(sizeof value).data(), sizeof value);
    return value;
  }
  [[nodiscard]] std::string text() const;
};

/// Cuts a byte stream into records. After an error the stream has no meaning any more: close it.
class Decoder {
 public:
  void feed(ConstBytes bytes);
  /// The next record, none yet, or what is wrong with the stream.
  [[nodiscard]] Result<std::optional<Record>> next();

 private:
  std::vector<std::byte> pending_;
  std::size_t taken_ = 0;  // bytes of pending_ that were answered already
};

}  // namespace nbx::nccl::announce
