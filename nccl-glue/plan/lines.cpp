#include "nccl-glue/plan/lines.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace nbx::nccl {

static_assert(std::endian::native == std::endian::little, "flags and data are the GPU's memory");

namespace {

constexpr std::size_t line = 128;       // of LL128
constexpr std::size_t line_data = 120;  // the rest is the flag
constexpr std::size_t half = 1024;      // eight lines; a slice is two of them, alike
constexpr std::size_t half_data = 960;

std::uint32_t ll_flag(std::uint64_t step) { return static_cast<std::uint32_t>(step + 1); }

void copy(MutableBytes to, ConstBytes from) {
  if (!from.empty()) {
    std::memcpy(to.data(), from.data(), from.size());
  }
}

/// The order of a warp's registers: lines 0 to 3 of a half carry the first 120 bytes of blocks of 128, lines 4 to 7
/// blocks of 112 and the 8 bytes that lines 0 to 3 had no room for. Calls piece(line offset, data offset, size).
template <class F>
void for_each_piece(F piece) {
  for (std::size_t i = 0; i < 4; ++i) {
    piece(i * line, i * 128, line_data);
    piece((4 + i) * line, 512 + i * 112, std::size_t{112});
    piece((4 + i) * line + 112, i * 128 + line_data, std::size_t{8});
  }
}

void encode_slice(const std::byte* data, std::byte* lines) {
  for (std::size_t h = 0; h < 2; ++h) {
    for_each_piece([&](std::size_t in_line, std::size_t in_data, std::size_t size) {
      std::memcpy(lines + h * half + in_line, data + h * half_data + in_data, size);
    });
  }
}

void decode_slice(const std::byte* lines, std::byte* data) {
  for (std::size_t h = 0; h < 2; ++h) {
    for_each_piece([&](std::size_t in_line, std::size_t in_data, std::size_t size) {
      std::memcpy(data + h * half_data + in_data, lines + h * half + in_line, size);
    });
  }
}

void encode_ll(ConstBytes data, std::uint64_t step, MutableBytes lines) {
  const std::uint32_t flag = ll_flag(step);
  const auto put = [&](std::size_t at, std::array<std::uint32_t, 2> words) {
    const std::array<std::uint32_t, 4> image{words[0], flag, words[1], flag};
    std::memcpy(lines.data() + at, image.data(), sizeof image);
  };
  std::size_t at = 0;
  for (; data.size() >= 8; data = data.subspan(8), at += ll_line) {
    std::array<std::uint32_t, 2> words;
    std::memcpy(words.data(), data.data(), sizeof words);
    put(at, words);
  }
  for (; at < lines.size(); at += ll_line) {
    std::array<std::uint32_t, 2> words{};
    copy(std::as_writable_bytes(std::span(words)), data);
    data = {};
    put(at, words);
  }
}

void decode_ll(ConstBytes lines, MutableBytes data) {
  for (; !data.empty(); lines = lines.subspan(ll_line)) {
    std::array<std::byte, 8> words;
    std::memcpy(words.data(), lines.data(), 4);
    std::memcpy(words.data() + 4, lines.data() + 8, 4);
    const std::size_t size = std::min(data.size(), words.size());
    std::memcpy(data.data(), words.data(), size);
    data = data.subspan(size);
  }
}

void encode_ll128(ConstBytes data, std::uint64_t step, MutableBytes lines) {
  std::size_t at = 0;
  for (; data.size() >= ll128_slice_data; data = data.subspan(ll128_slice_data), at += ll128_slice) {
    encode_slice(data.data(), lines.data() + at);
  }
  for (; at < lines.size(); at += ll128_slice) {
    std::array<std::byte, ll128_slice_data> last{};
    copy(last, data);
    data = {};
    encode_slice(last.data(), lines.data() + at);
  }
  restamp(Protocol::ll128, lines, step);
}

void decode_ll128(ConstBytes lines, MutableBytes data) {
  for (; data.size() >= ll128_slice_data; data = data.subspan(ll128_slice_data), lines = lines.subspan(ll128_slice)) {
    decode_slice(lines.data(), data.data());
  }
  if (!data.empty()) {
    std::array<std::byte, ll128_slice_data> last;
    decode_slice(lines.data(), last.data());
    std::memcpy(data.data(), last.data(), data.size());
  }
}

/// Whether all words of type U at `first`, `first` + `stride` ... are `flag`. No early end, so that it vectorises.
template <class U>
bool all_words(ConstBytes lines, std::size_t first, std::size_t stride, U flag) {
  U difference = 0;
  for (std::size_t at = first; at < lines.size(); at += stride) {
    U word;
    std::memcpy(&word, lines.data() + at, sizeof word);
    difference |= word ^ flag;
  }
  return difference == 0;
}

template <class U>
void set_words(MutableBytes lines, std::size_t first, std::size_t stride, U flag) {
  for (std::size_t at = first; at < lines.size(); at += stride) {
    std::memcpy(lines.data() + at, &flag, sizeof flag);
  }
}

}  // namespace

void encode(Protocol protocol, ConstBytes data, std::uint64_t step, MutableBytes lines) noexcept {
  switch (protocol) {
    case Protocol::ll:
      return encode_ll(data, step, lines);
    case Protocol::ll128:
      return encode_ll128(data, step, lines);
    case Protocol::simple:
      return copy(lines, data);
  }
}

void decode(Protocol protocol, ConstBytes lines, MutableBytes data) noexcept {
  switch (protocol) {
    case Protocol::ll:
      return decode_ll(lines, data);
    case Protocol::ll128:
      return decode_ll128(lines, data);
    case Protocol::simple:
      return copy(data, lines.first(data.size()));
  }
}

bool flagged(Protocol protocol, ConstBytes lines, std::uint64_t step) noexcept {
  switch (protocol) {
    case Protocol::ll:
      return all_words(lines, 4, 8, ll_flag(step));
    case Protocol::ll128:
      return all_words(lines, line_data, line, step + 1);
    case Protocol::simple:
      break;
  }
  return true;
}

void restamp(Protocol protocol, MutableBytes lines, std::uint64_t step) noexcept {
  switch (protocol) {
    case Protocol::ll:
      return set_words(lines, 4, 8, ll_flag(step));
    case Protocol::ll128:
      return set_words(lines, line_data, line, step + 1);
    case Protocol::simple:
      break;
  }
}

}  // namespace nbx::nccl
