#include "capture/reader.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/wide.hpp"

namespace nbx::capture {
namespace {

constexpr std::uint32_t pcap_magic_microseconds = 0xa1b2'c3d4;
constexpr std::uint32_t pcap_magic_nanoseconds = 0xa1b2'3c4d;
constexpr std::size_t pcap_header_size = 24;
constexpr std::size_t pcap_record_header_size = 16;

constexpr std::size_t item_size_max = 16U << 20U;  // Wireshark's limit too; larger blocks are skipped or refused
constexpr std::size_t interfaces_max = 65'536;
constexpr std::size_t block_overhead = 12;            // type and both total lengths
constexpr std::size_t timed_packet_header_size = 20;  // enhanced and obsolete packet blocks
constexpr std::size_t statistics_header_size = 12;

constexpr const char* ends_early = "the file ends in the middle";

std::int64_t saturated(int128 ns) {
  constexpr int128 furthest = std::numeric_limits<std::int64_t>::max() / 2;  // the difference of any two fits
  return static_cast<std::int64_t>(std::clamp(ns, -furthest, furthest));
}

/// Section 4.2: if_tsresol is a negative power of 10, or of 2 when the most significant bit is set.
std::int64_t to_nanoseconds(std::uint64_t ticks, const Reader::Interface& interface) {
  constexpr unsigned nano = 9;
  constexpr unsigned digits_max = 20;  // of 64 bits
  const unsigned exponent = interface.resolution & 0x7fU;
  uint128 ns = ticks;
  if ((interface.resolution & 0x80U) != 0) {
    ns = (ns * 1'000'000'000U) >> exponent;
  } else if (exponent <= nano) {
    for (unsigned i = exponent; i < nano; ++i) {
      ns *= 10;
    }
  } else {
    for (unsigned i = nano; i < std::min(exponent, nano + digits_max); ++i) {
      ns /= 10;
    }
  }
  return saturated(static_cast<int128>(ns) + static_cast<int128>(interface.offset_s) * 1'000'000'000);
}

std::string_view text_of(ConstBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

constexpr std::size_t padded(std::size_t n) { return (n + 3U) & ~std::size_t{3}; }

}  // namespace

Result<Reader, ReadError> Reader::open(std::istream& in) {
  Reader reader(in);
  std::array<std::byte, 4> magic{};
  Failure failure;
  if (reader.read(magic) != magic.size()) {
    failure = {"the file is shorter than any capture"};
  } else if (reader.get<std::uint32_t>(magic, 0) == block::section_header) {
    reader.format_ = Format::pcapng;
    std::uint32_t size = 0;
    failure = reader.begin_section(size);
  } else {
    failure = reader.open_pcap(magic);
  }
  if (failure) {
    return ReadError{0, failure.reason};
  }
  return reader;
}

Result<bool, ReadError> Reader::next(Record& record) {
  bool found = false;
  std::uint64_t before = 0;
  do {  // blocks that hold no packet are passed over
    before = offset_;
    item_offset_ = offset_;
    const Failure failure = format_ == Format::pcap ? next_pcap(record, found) : next_block(record, found);
    if (failure) {
      return ReadError{item_offset_, failure.reason};
    }
  } while (!found && offset_ != before);
  return found;
}

Reader::Failure Reader::open_pcap(ConstBytes magic) {
  std::uint32_t value = get<std::uint32_t>(magic, 0);
  if (value != pcap_magic_microseconds && value != pcap_magic_nanoseconds) {
    value = __builtin_bswap32(value);
    swapped_ = true;
  }
  if (value != pcap_magic_microseconds && value != pcap_magic_nanoseconds) {
    return {"neither pcap nor pcapng"};
  }
  fraction_is_nanoseconds_ = value == pcap_magic_nanoseconds;
  std::array<std::byte, pcap_header_size> header{};
  if (read(MutableBytes(header).subspan(magic.size())) != header.size() - magic.size()) {
    return {ends_early};
  }
  Interface interface;
  interface.snaplen = get<std::uint32_t>(header, 16);
  interface.link_type = static_cast<std::uint16_t>(get<std::uint32_t>(header, 20));  // above: length of the FCS
  interfaces_.push_back(std::move(interface));
  return {};
}

Reader::Failure Reader::next_pcap(Record& record, bool& found) {
  std::array<std::byte, pcap_record_header_size> header{};
  const std::size_t got = read(header);
  if (got == 0) {
    return {};
  }
  if (got != header.size()) {
    return {ends_early};
  }
  const std::uint32_t size = get<std::uint32_t>(header, 8);
  if (size > item_size_max) {
    return {"packet larger than 16 MiB"};
  }
  if (const Failure failure = read_body(size)) {
    return failure;
  }
  const std::int64_t fraction = get<std::uint32_t>(header, 4);
  record = {};
  record.timestamp_ns =
      std::int64_t{get<std::uint32_t>(header, 0)} * 1'000'000'000 + fraction * (fraction_is_nanoseconds_ ? 1 : 1000);
  record.original_size = get<std::uint32_t>(header, 12);
  record.captured = buffer_;
  found = true;
  return {};
}

Reader::Failure Reader::next_block(Record& record, bool& found) {
  std::array<std::byte, 8> header{};
  const std::size_t got = read(MutableBytes(header).first(4));
  if (got == 0) {
    return {};
  }
  const auto type = get<std::uint32_t>(header, 0);
  if (got == 4 && type == block::section_header) {
    std::uint32_t size = 0;
    return begin_section(size);
  }
  if (got != 4 || read(MutableBytes(header).subspan(4)) != 4) {
    return {ends_early};
  }
  const auto size = get<std::uint32_t>(header, 4);
  if (size < block_overhead || size % 4 != 0) {
    return {"impossible block length"};
  }
  const std::size_t body_size = size - block_overhead;
  const bool known = type == block::interface_description || type == block::packet || type == block::simple_packet ||
                     type == block::interface_statistics || type == block::enhanced_packet;
  if (!known) {
    in_->ignore(static_cast<std::streamsize>(body_size));
    offset_ += static_cast<std::uint64_t>(in_->gcount());
    return finish_block(size);
  }
  if (body_size > item_size_max) {
    return {"block larger than 16 MiB"};
  }
  if (const Failure failure = read_body(body_size)) {
    return failure;
  }
  if (const Failure failure = finish_block(size)) {
    return failure;
  }
  const ConstBytes body = buffer_;
  switch (type) {
    case block::interface_description:
      return parse_interface(body);
    case block::interface_statistics:
      return parse_statistics(body);
    default:
      found = true;
      record = {};
      return type == block::enhanced_packet ? parse_enhanced(body, record)
             : type == block::simple_packet ? parse_simple(body, record)
                                            : parse_obsolete(body, record);
  }
}

/// The block type has been read; it reads the same in either byte order.
Reader::Failure Reader::begin_section(std::uint32_t& size) {
  std::array<std::byte, 8> header{};
  if (read(header) != header.size()) {
    return {ends_early};
  }
  swapped_ = false;
  if (get<std::uint32_t>(header, 4) != byte_order_magic) {
    swapped_ = true;
  }
  if (get<std::uint32_t>(header, 4) != byte_order_magic) {
    return {"section header without the byte-order magic"};
  }
  size = get<std::uint32_t>(header, 0);
  constexpr std::size_t smallest = block_overhead + 16;
  if (size < smallest || size % 4 != 0 || size > item_size_max) {
    return {"impossible length of a section header"};
  }
  if (const Failure failure = read_body(size - block_overhead - 4)) {  // the magic has been read
    return failure;
  }
  if (get<std::uint16_t>(buffer_, 0) != 1) {
    return {"pcapng of an unknown major version"};
  }
  section_ = interfaces_.size();
  return finish_block(size);
}

Reader::Failure Reader::read_body(std::size_t size) {
  buffer_.resize(size);
  return read(buffer_) == size ? Failure{} : Failure{ends_early};
}

Reader::Failure Reader::finish_block(std::uint32_t size) {
  std::array<std::byte, 4> trailer{};
  if (read(trailer) != trailer.size()) {
    return {ends_early};
  }
  return get<std::uint32_t>(trailer, 0) == size ? Failure{} : Failure{"the two lengths of a block differ"};
}

template <class Visit>
Reader::Failure Reader::for_each_option(ConstBytes options, Visit&& visit) const {
  while (options.size() >= 4) {
    const auto code = get<std::uint16_t>(options, 0);
    const std::size_t size = get<std::uint16_t>(options, 2);
    options = options.subspan(4);
    if (code == option::end) {
      break;
    }
    if (size > options.size()) {
      return {"an option is longer than its block"};
    }
    visit(code, options.first(size));
    options = options.subspan(std::min(padded(size), options.size()));
  }
  return {};
}

Reader::Failure Reader::parse_interface(ConstBytes body) {
  constexpr std::size_t header_size = 8;
  if (body.size() < header_size) {
    return {"interface description too short"};
  }
  if (interfaces_.size() == interfaces_max) {
    return {"more than 65536 interfaces"};
  }
  Interface interface;
  interface.link_type = get<std::uint16_t>(body, 0);
  interface.snaplen = get<std::uint32_t>(body, 4);
  const Failure failure =
      for_each_option(body.subspan(header_size), [this, &interface](std::uint16_t code, ConstBytes value) {
        if (code == option::if_name) {
          interface.name = text_of(value.first(std::min<std::size_t>(value.size(), 256)));
        } else if (code == option::if_description) {
          interface.description = text_of(value.first(std::min<std::size_t>(value.size(), 256)));
        } else if (code == option::if_tsresol && value.size() == 1) {
          interface.resolution = std::to_integer<std::uint8_t>(value[0]);
        } else if (code == option::if_tsoffset && value.size() == 8) {
          interface.offset_s = static_cast<std::int64_t>(get<std::uint64_t>(value, 0));
        }
      });
  interfaces_.push_back(std::move(interface));
  return failure;
}

Reader::Failure Reader::parse_statistics(ConstBytes body) {
  if (body.size() < statistics_header_size) {
    return {"interface statistics too short"};
  }
  const std::size_t index = section_ + get<std::uint32_t>(body, 0);
  if (index >= interfaces_.size()) {
    return {"statistics of an interface that was not described"};
  }
  return for_each_option(body.subspan(statistics_header_size),
                         [this, &interface = interfaces_[index]](std::uint16_t code, ConstBytes value) {
                           if (code == option::isb_ifrecv && value.size() == 8) {
                             interface.received = get<std::uint64_t>(value, 0);
                           } else if (code == option::isb_ifdrop && value.size() == 8) {
                             interface.dropped = get<std::uint64_t>(value, 0);
                           }
                         });
}

/// Fields that enhanced and obsolete packet blocks share: time, both sizes, data, options, from byte 4 on.
Reader::Failure Reader::take_packet(ConstBytes body, std::uint32_t interface, std::size_t at, Record& record) const {
  const std::size_t index = section_ + interface;
  if (index >= interfaces_.size()) {
    return {"packet of an interface that was not described"};
  }
  const std::size_t captured = get<std::uint32_t>(body, at + 8);
  const std::size_t data = at + 16;
  if (captured > body.size() - data) {
    return {"captured length exceeds the block"};
  }
  const std::uint64_t ticks = (std::uint64_t{get<std::uint32_t>(body, at)} << 32U) | get<std::uint32_t>(body, at + 4);
  record.timestamp_ns = to_nanoseconds(ticks, interfaces_[index]);
  record.interface = static_cast<std::uint32_t>(index);
  record.original_size = get<std::uint32_t>(body, at + 12);
  record.captured = body.subspan(data, captured);
  const ConstBytes options = body.subspan(data + std::min(padded(captured), body.size() - data));
  return for_each_option(options, [this, &record](std::uint16_t code, ConstBytes value) {
    if (code == option::comment && record.comment.empty()) {
      record.comment = text_of(value);
    } else if (code == option::epb_flags && value.size() == 4) {  // pack_flags has the same code and meaning
      const std::uint32_t direction = get<std::uint32_t>(value, 0) & 3U;
      record.direction = direction == 3 ? Direction::unknown : static_cast<Direction>(direction);
    }
  });
}

Reader::Failure Reader::parse_enhanced(ConstBytes body, Record& record) const {
  if (body.size() < timed_packet_header_size) {
    return {"packet block too short"};
  }
  return take_packet(body, get<std::uint32_t>(body, 0), 4, record);
}

Reader::Failure Reader::parse_obsolete(ConstBytes body, Record& record) const {
  if (body.size() < timed_packet_header_size) {
    return {"packet block too short"};
  }
  return take_packet(body, get<std::uint16_t>(body, 0), 4, record);  // a drop count fills the second half
}

/// Section 4.4: the interface is the section's first, and its snaplen says how much was captured.
Reader::Failure Reader::parse_simple(ConstBytes body, Record& record) const {
  if (body.size() < 4) {
    return {"packet block too short"};
  }
  if (section_ >= interfaces_.size()) {
    return {"packet of an interface that was not described"};
  }
  record.original_size = get<std::uint32_t>(body, 0);
  const std::uint32_t snaplen = interfaces_[section_].snaplen;
  const std::uint32_t captured = snaplen == 0 ? record.original_size : std::min(record.original_size, snaplen);
  if (captured > body.size() - 4) {
    return {"captured length exceeds the block"};
  }
  record.interface = static_cast<std::uint32_t>(section_);
  record.captured = body.subspan(4, captured);
  return {};
}

std::size_t Reader::read(MutableBytes out) {
  in_->read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
  const auto got = static_cast<std::size_t>(in_->gcount());
  offset_ += got;
  return got;
}

template <class T>
T Reader::get(ConstBytes bytes, std::size_t offset) const {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  if (swapped_) {
    if constexpr (sizeof(T) == 2) {
      return __builtin_bswap16(value);
    } else if constexpr (sizeof(T) == 4) {
      return __builtin_bswap32(value);
    } else {
      return __builtin_bswap64(value);
    }
  }
  return value;
}

}  // namespace nbx::capture
