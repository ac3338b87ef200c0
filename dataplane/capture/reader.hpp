// Reads captures as a stream: pcap with micro- or nanoseconds and pcapng, in either byte order. Memory is bounded
// whatever the file says, and every disagreement within a file is an error with its position, never more.
// pcapng: draft-ietf-opsawg-pcapng; pcap: draft-ietf-opsawg-pcap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "capture/pcapng_writer.hpp"

namespace nbx::capture {

struct ReadError {
  std::uint64_t offset = 0;  // of the block or record that is wrong
  std::string reason;
};

/// One packet; its views hold until the next call of next().
struct Record {
  std::int64_t timestamp_ns = 0;  // since 1970-01-01 UTC; 0 in a simple packet block, which has no time
  std::uint32_t interface = 0;    // index into Reader::interfaces()
  std::uint32_t original_size = 0;
  ConstBytes captured;
  Direction direction = Direction::unknown;
  std::string_view comment;  // the first one
};

class Reader {
 public:
  struct Interface {
    std::string name;
    std::string description;
    std::uint16_t link_type = 0;
    std::uint32_t snaplen = 0;
    std::uint8_t resolution = 6;  // if_tsresol: a negative power of ten, or of two when the top bit is set
    std::int64_t offset_s = 0;    // if_tsoffset
    // From the last statistics block, when there is one.
    std::optional<std::uint64_t> received;
    std::optional<std::uint64_t> dropped;
  };

  /// Reads the file header. `in` must outlive the reader.
  static Result<Reader, ReadError> open(std::istream& in);

  /// Reads the next packet into `record`; false at the end of the file.
  Result<bool, ReadError> next(Record& record);

  /// Those seen so far, of all sections; the interfaces of a later section are numbered on.
  [[nodiscard]] const std::vector<Interface>& interfaces() const noexcept { return interfaces_; }
  /// Bytes read so far.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

 private:
  enum class Format : std::uint8_t { pcap, pcapng };
  /// What became of a block or a part of it.
  struct Failure {
    const char* reason = nullptr;  // nullptr: all is well
    explicit operator bool() const noexcept { return reason != nullptr; }
  };

  explicit Reader(std::istream& in) : in_(&in) {}

  Failure open_pcap(ConstBytes magic);
  Failure next_pcap(Record& record, bool& found);

  Failure next_block(Record& record, bool& found);
  Failure begin_section(std::uint32_t& size);
  Failure read_body(std::size_t size);
  Failure finish_block(std::uint32_t size);
  Failure parse_interface(ConstBytes body);
  Failure parse_statistics(ConstBytes body);
  Failure parse_enhanced(ConstBytes body, Record& record) const;
  Failure parse_simple(ConstBytes body, Record& record) const;
  Failure parse_obsolete(ConstBytes body, Record& record) const;
  Failure take_packet(ConstBytes body, std::uint32_t interface, std::size_t at, Record& record) const;
  template <class Visit>
  Failure for_each_option(ConstBytes options, Visit&& visit) const;

  /// How many of the wanted bytes there were.
  std::size_t read(MutableBytes out);
  template <class T>
  [[nodiscard]] T get(ConstBytes bytes, std::size_t offset) const;

  std::istream* in_;
  Format format_ = Format::pcap;
  bool swapped_ = false;
  bool fraction_is_nanoseconds_ = false;  // of a pcap
  std::uint64_t offset_ = 0;
  std::uint64_t item_offset_ = 0;  // where the current block or record began
  std::vector<std::byte> buffer_;
  std::vector<Interface> interfaces_;
  std::size_t section_ = 0;  // index of the current section's first interface
};

}  // namespace nbx::capture
