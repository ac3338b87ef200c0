#include "capture/pcapng_writer.hpp"

#include <cstring>
#include <type_traits>

namespace nbx::capture {
namespace {

constexpr std::size_t padded(std::size_t n) { return (n + 3U) & ~std::size_t{3}; }
constexpr std::size_t option_size(std::size_t value) { return value == 0 ? 0 : 4 + padded(value); }
constexpr std::size_t frame_of_block = 12;  // type and both total lengths
constexpr std::size_t end_of_options = 4;

/// Appends to a block whose size was found to fit beforehand.
class Block {
 public:
  Block(MutableBytes out, std::uint32_t type, std::size_t size) noexcept
      : at_(out.data()), size_(static_cast<std::uint32_t>(size)) {
    put(type);
    put(size_);
  }

  template <class T>
  void put(T value) noexcept {
    static_assert(std::is_unsigned_v<T>);
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }
  /// 64-bit times are two words, the upper one first in either byte order (section 4.3).
  void put_time(std::uint64_t t) noexcept {
    put(static_cast<std::uint32_t>(t >> 32U));
    put(static_cast<std::uint32_t>(t));
  }
  void put_padded(const void* data, std::size_t size) noexcept {
    if (size != 0) {
      std::memcpy(at_, data, size);
    }
    std::memset(at_ + size, 0, padded(size) - size);
    at_ += padded(size);
  }

  void begin_option(std::uint16_t code, std::size_t size) noexcept {
    put(code);
    put(static_cast<std::uint16_t>(size));
  }
  template <class T>
  void put_option(std::uint16_t code, T value) noexcept {
    begin_option(code, sizeof value);
    put_padded(&value, sizeof value);
  }
  void put_option(std::uint16_t code, std::string_view text) noexcept {
    if (!text.empty()) {
      begin_option(code, text.size());
      put_padded(text.data(), text.size());
    }
  }

  std::size_t finish() noexcept {
    put(std::uint32_t{option::end});
    put(size_);
    return size_;
  }

 private:
  std::byte* at_;
  std::uint32_t size_;
};

}  // namespace

std::size_t format_shb(MutableBytes out, const Section& section) noexcept {
  const std::size_t size = frame_of_block + 16 + option_size(section.hardware.size()) + option_size(section.os.size()) +
                           option_size(section.application.size()) + option_size(section.comment.size()) +
                           end_of_options;
  if (out.size() < size) {
    return 0;
  }
  Block b(out, block::section_header, size);
  b.put(byte_order_magic);
  b.put(std::uint16_t{1});  // version 1.0
  b.put(std::uint16_t{0});
  b.put(~std::uint64_t{0});  // section length: not given
  b.put_option(option::shb_hardware, section.hardware);
  b.put_option(option::shb_os, section.os);
  b.put_option(option::shb_userappl, section.application);
  b.put_option(option::comment, section.comment);
  return b.finish();
}

std::size_t format_idb(MutableBytes out, const InterfaceDescription& interface) noexcept {
  constexpr std::uint8_t nanoseconds = 9;
  const bool speed_known = !interface.speed.unlimited();
  const std::size_t size = frame_of_block + 8 + option_size(interface.name.size()) +
                           option_size(interface.description.size()) + (speed_known ? option_size(8) : 0) +
                           option_size(1) + end_of_options;
  if (out.size() < size) {
    return 0;
  }
  Block b(out, block::interface_description, size);
  b.put(linktype_ethernet);
  b.put(std::uint16_t{0});
  b.put(interface.snaplen);
  b.put_option(option::if_name, interface.name);
  b.put_option(option::if_description, interface.description);
  if (speed_known) {
    b.put_option(option::if_speed, interface.speed.bits_per_second);
  }
  b.put_option(option::if_tsresol, nanoseconds);
  return b.finish();
}

std::size_t format_epb(MutableBytes out, const PacketRecord& record) noexcept {
  const std::size_t size = frame_of_block + 20 + padded(record.captured.size()) + option_size(record.comment.size()) +
                           option_size(4) + end_of_options;
  if (out.size() < size) {
    return 0;
  }
  Block b(out, block::enhanced_packet, size);
  b.put(record.interface_id);
  b.put_time(record.timestamp_ns);
  b.put(static_cast<std::uint32_t>(record.captured.size()));
  b.put(record.original_size);
  b.put_padded(record.captured.data(), record.captured.size());
  b.put_option(option::comment, record.comment);
  b.put_option(option::epb_flags, static_cast<std::uint32_t>(record.direction));
  return b.finish();
}

std::uint64_t epb_time(ConstBytes epb) noexcept {
  constexpr std::size_t time_offset = 12;  // section 4.3
  std::uint32_t high = 0;
  std::uint32_t low = 0;
  std::memcpy(&high, epb.data() + time_offset, sizeof high);
  std::memcpy(&low, epb.data() + time_offset + sizeof high, sizeof low);
  return (std::uint64_t{high} << 32U) | low;
}

void set_epb_interface(MutableBytes epb, std::uint32_t interface) noexcept {
  constexpr std::size_t interface_offset = 8;  // section 4.3
  std::memcpy(epb.data() + interface_offset, &interface, sizeof interface);
}

std::size_t format_isb(MutableBytes out, const InterfaceStatistics& statistics) noexcept {
  if (out.size() < isb_size) {
    return 0;
  }
  const auto put_time_option = [](Block& b, std::uint16_t code, std::uint64_t t) {
    b.begin_option(code, sizeof t);
    b.put_time(t);
  };
  Block b(out, block::interface_statistics, isb_size);
  b.put(statistics.interface_id);
  b.put_time(statistics.end_ns);
  put_time_option(b, option::isb_starttime, statistics.start_ns);
  put_time_option(b, option::isb_endtime, statistics.end_ns);
  b.put_option(option::isb_ifrecv, statistics.received);
  b.put_option(option::isb_ifdrop, statistics.lost);
  return b.finish();
}

}  // namespace nbx::capture
