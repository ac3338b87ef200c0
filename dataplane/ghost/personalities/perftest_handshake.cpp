#include "ghost/personalities/perftest_handshake.hpp"

#include <cstdio>

#include "ghost/personalities/text_fields.hpp"
#include "ghost/personalities/wire_types.hpp"

namespace nbx::ghost {

std::optional<PerftestEnd> decode_text(ConstBytes record) {
  if (record.size() != perftest_text_size) {
    return std::nullopt;
  }
  TextFields fields{{reinterpret_cast<const char*>(record.data()), record.size()}};
  PerftestEnd end;
  fields.hex(4);  // LID
  end.out_reads = static_cast<std::uint32_t>(fields.hex(4));
  end.qpn = static_cast<std::uint32_t>(fields.hex(6));
  end.psn = static_cast<std::uint32_t>(fields.hex(6));
  end.rkey = static_cast<std::uint32_t>(fields.hex(8));
  end.addr = fields.hex(16);
  for (std::uint8_t& octet : end.gid.octets) {
    octet = static_cast<std::uint8_t>(fields.hex(2));
  }
  return fields.good() ? std::optional{end} : std::nullopt;
}

std::string encode_text(const PerftestEnd& end) {
  std::array<char, perftest_text_size + 1> text{};
  const auto& g = end.gid.octets;
  std::snprintf(text.data(), text.size(),
                "%04x:%04x:%06x:%06x:%08x:%016llx:"
                "%02x:%02x:%02x:%02x:%02x:%02x:%02x:%02x:%02x:%02x:%02x:%02x:%02x:%02x:%02x:%02x:%08x:",
                0U, end.out_reads, end.qpn, end.psn, end.rkey, static_cast<unsigned long long>(end.addr), g[0], g[1],
                g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12], g[13], g[14], g[15], 0U);
  return {text.data(), perftest_text_size};  // the terminating zero is part of the record
}

std::optional<PerftestEnd> decode_struct(ConstBytes record) {
  const auto* image = overlay<PerftestDestination>(record);
  if (image == nullptr || record.size() != sizeof *image) {
    return std::nullopt;
  }
  PerftestEnd end;
  end.out_reads = image->out_reads.value();
  end.qpn = image->qpn.value();
  end.psn = image->psn.value();
  end.rkey = image->rkey.value();
  end.addr = image->addr.value();
  end.gid.octets = image->gid;
  return end;
}

std::string encode_struct(const PerftestEnd& end) {
  std::string record(sizeof(PerftestDestination), '\0');
  auto* image = mutable_overlay<PerftestDestination>(std::as_writable_bytes(std::span{record}));
  image->out_reads = end.out_reads;
  image->qpn = end.qpn;
  image->psn = end.psn;
  image->rkey = end.rkey;
  image->addr = end.addr;
  image->gid = end.gid.octets;
  return record;
}

std::size_t PerftestItems::size_of_next() const {
  if (taken_ < preamble.size()) {
    return preamble[taken_];
  }
  constexpr std::size_t value_size = 8;
  constexpr std::string_view done{"done\0", 5};
  if (std::string_view{buffer_}.starts_with(done)) {
    return done.size();
  }
  TextFields lid{std::string_view{buffer_}.substr(0, 4)};
  lid.hex(4);
  const bool destination = lid.good() && buffer_.size() > 4 && buffer_[4] == ':';
  return destination ? perftest_text_size : value_size;
}

std::string PerftestItems::next() {
  const std::size_t size = size_of_next();
  if (buffer_.size() < std::max<std::size_t>(size, taken_ < preamble.size() ? 0 : 5)) {
    return {};
  }
  std::string item = buffer_.substr(0, size);
  buffer_.erase(0, size);
  ++taken_;
  return item;
}

}  // namespace nbx::ghost
