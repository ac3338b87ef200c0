#include "nccl-glue/announce/codec.hpp"

#include <algorithm>

namespace nbx::nccl::announce {
namespace {

template <class Enum>
bool within(Enum value, Enum last) {
  return static_cast<std::uint8_t>(value) <= static_cast<std::uint8_t>(last);
}

/// What is wrong with the body, or nothing.
template <Body T>
const char* check(const T& /*body*/) {
  return nullptr;
}

/// Not set, or a size that messages can be cut by.
bool sane_size(std::uint32_t size, std::uint32_t least) { return size == 0 || (size >= least && size <= 1U << 30U); }

template <>
const char* check(const Hello& hello) {
  constexpr std::uint32_t channels_max = 64;  // MAXCHANNELS
  const Variables& given = hello.variables;
  if (hello.magic_number != magic) {
    return "magic number is not that of an announcement";
  }
  if (!sane_size(given.buffsize, 1U << 16U) || !sane_size(given.ll_buffsize, 1U << 16U) ||
      !sane_size(given.ll128_buffsize, 1U << 16U)) {
    return "NCCL_BUFFSIZE, NCCL_LL_BUFFSIZE or NCCL_LL128_BUFFSIZE is not between 64 KiB and 1 GiB";
  }
  if (!sane_size(given.p2p_net_chunksize, 1U << 12U)) {
    return "NCCL_P2P_NET_CHUNKSIZE is not between 4 KiB and 1 GiB";
  }
  return std::max(given.min_p2p_nchannels, given.max_p2p_nchannels) <= channels_max
             ? nullptr
             : "NCCL_MIN_P2P_NCHANNELS or NCCL_MAX_P2P_NCHANNELS is above 64";
}

template <>
const char* check(const CommInit& init) {
  return init.ranks > 0 && init.rank >= 0 && init.rank < init.ranks ? nullptr : "rank lies outside the communicator";
}

template <>
const char* check(const OperationCall& call) {
  if (!within(call.collective, Collective::recv) || static_cast<std::uint8_t>(call.collective) == 5) {
    return "no such collective";
  }
  if (!within(call.type, DataType::bf16)) {
    return "no such data type";
  }
  if (!within(call.op, RedOp::avg)) {
    return "no such reduction";
  }
  return call.root >= 0 ? nullptr : "negative root or peer";
}

template <>
const char* check(const OperationDecision& decision) {
  if (!within(decision.algorithm, Algorithm::ring)) {
    return "no such algorithm";
  }
  if (!within(decision.protocol, Protocol::simple)) {
    return "no such protocol";
  }
  return decision.channels > 0 ? nullptr : "no channels";
}

/// The only body with a tail: a bit per rank of the parent.
const char* check_shrink(ConstBytes body) {
  if (body.size() < sizeof(CommShrink)) {
    return "wrong size for its kind";
  }
  const auto shrink = Record{.body = body}.as<CommShrink>();
  const std::size_t bitmap = (std::size_t{shrink.parent_ranks} + 7) / 8;
  return body.size() == sizeof shrink + bitmap ? nullptr : "wrong size for its kind";
}

template <Body T>
const char* check_body(ConstBytes body) {
  return body.size() == sizeof(T) ? check(Record{.body = body}.as<T>()) : "wrong size for its kind";
}

const char* check_record(const Record& record) {
  switch (record.kind) {
    case Kind::hello:
      return check_body<Hello>(record.body);
    case Kind::comm_init:
      return check_body<CommInit>(record.body);
    case Kind::comm_ready:
    case Kind::comm_destroy:
    case Kind::group_end:
      return check_body<CommRef>(record.body);
    case Kind::comm_split:
      return check_body<CommSplit>(record.body);
    case Kind::comm_shrink:
      return check_shrink(record.body);
    case Kind::operation:
      return check_body<OperationCall>(record.body);
    case Kind::decision:
      return check_body<OperationDecision>(record.body);
    case Kind::welcome:
      return check_body<Welcome>(record.body);
    case Kind::failure:
      return nullptr;
  }
  return "unknown kind";
}

}  // namespace

std::vector<std::byte> encode(Kind kind, ConstBytes body) {
  const auto size = static_cast<std::uint32_t>(sizeof kind + body.size());
  std::vector<std::byte> record(sizeof size + size);
  std::memcpy(record.data(), &size, sizeof size);
  std::memcpy(record.data() + sizeof size, &kind, sizeof kind);
  std::ranges::copy(body, record.begin() + header_size);
  return record;
}

std::vector<std::byte> encode(Kind kind, std::string_view text) {
  return encode(kind, std::as_bytes(std::span(text.substr(0, text_size_max))));
}

std::string Record::text() const {
  std::string text(body.size(), '\0');
  std::memcpy(text.data(), body.data(), body.size());
  return text;
}

void Decoder::feed(ConstBytes bytes) {
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<Record>> Decoder::next() {
  const ConstBytes rest = ConstBytes(pending_).subspan(taken_);
  std::uint32_t size = 0;
  if (rest.size() < sizeof size) {
    return std::optional<Record>{};
  }
  std::memcpy(&size, rest.data(), sizeof size);
  if (size < sizeof(Kind) || size > record_size_max) {
    return Error{"announcement: a record of " + std::to_string(size) + " bytes"};
  }
  if (rest.size() < sizeof size + size) {
    return std::optional<Record>{};
  }
  Record record{.body = rest.subspan(header_size, size - sizeof(Kind))};
  std::memcpy(&record.kind, rest.data() + sizeof size, sizeof record.kind);
  if (const char* wrong = check_record(record)) {
    return Error{"announcement: record of kind " + std::to_string(static_cast<std::uint32_t>(record.kind)) + ", " +
                 std::to_string(record.body.size()) + " bytes: " + wrong};
  }
  taken_ += sizeof size + size;
  return std::optional<Record>{record};
}

}  // namespace nbx::nccl::announce
