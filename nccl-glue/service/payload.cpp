#include "nccl-glue/service/payload.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"

namespace nbx::nccl {

Outgoing with_empty_lines(Arena& arena, const Outgoing& outgoing, std::uint64_t size, std::uint64_t step) {
  const auto buffer = arena.take(size);
  NBX_CHECK(buffer);
  const MutableBytes lines = arena.bytes(*buffer);
  const MutableBytes data = arena.bytes(outgoing.buffer).first(outgoing.size);
  std::fill(std::copy(data.begin(), data.end(), lines.begin()), lines.end(), std::byte{0});
  restamp(Protocol::ll, lines, step);
  if (!outgoing.shared) {
    arena.give_back(outgoing.buffer);
  }
  return {.buffer = *buffer, .size = size};
}

Payloads::~Payloads() {
  for (const auto& [key, buffer] : identities_) {
    arena_.give_back(buffer);
  }
  for (const Arena::Buffer& buffer : outgrown_) {
    arena_.give_back(buffer);
  }
}

Outgoing Payloads::made(ConstBytes data, Protocol protocol, std::uint64_t step) {
  const auto buffer = arena_.take(wire_size(protocol, data.size()));
  NBX_CHECK(buffer);
  const MutableBytes room = arena_.bytes(*buffer);
  if (protocol == Protocol::simple) {
    std::copy(data.begin(), data.end(), room.begin());
  } else {
    encode(protocol, data, step, room);
  }
  return {.buffer = *buffer, .size = room.size()};
}

Outgoing Payloads::identity(const Operation& operation, Protocol protocol, std::uint32_t bytes, std::uint64_t step) {
  if (protocol != Protocol::simple) {
    scratch_.resize(bytes);
    fill_identity(scratch_, operation.type, operation.op);
    return made(scratch_, protocol, step);
  }
  const auto [entry, is_new] = identities_.try_emplace({operation.type, operation.op});
  if (is_new || entry->second.size < bytes) {
    if (!is_new) {
      outgrown_.push_back(entry->second);
    }
    const auto buffer = arena_.take(std::max<std::uint64_t>(bytes, 1));
    NBX_CHECK(buffer);
    entry->second = *buffer;
    fill_identity(arena_.bytes(*buffer), operation.type, operation.op);
  }
  return {.buffer = entry->second, .size = bytes, .shared = true};
}

Outgoing Payloads::own(const Operation& operation, Protocol protocol, std::int32_t rank, const Extent& extent,
                       std::uint64_t step) {
  scratch_.assign(extent.bytes, std::byte{0});
  switch (options_.filling) {
    case Filling::zero:
      break;
    case Filling::pattern:
      fill_pattern(scratch_, operation.type, static_cast<std::uint32_t>(rank),
                   extent.offset / type_size(operation.type));
      break;
    case Filling::file:
      for (std::size_t i = 0; i < scratch_.size() && !options_.file.empty(); ++i) {
        scratch_[i] = options_.file[(extent.offset + i) % options_.file.size()];
      }
      break;
  }
  return made(scratch_, protocol, step);
}

Outgoing Payloads::passed(const Message& message, Protocol protocol, std::uint32_t bytes, std::uint64_t step,
                          const std::function<void(MutableBytes)>& change) {
  Arena::Buffer content = message.buffer;
  content.size = message.size;
  const MutableBytes lines = arena_.bytes(content);
  if (change) {
    if (protocol == Protocol::simple) {
      change(lines);
    } else {
      scratch_.resize(bytes);
      decode(protocol, lines, scratch_);
      change(scratch_);
      encode(protocol, scratch_, step, lines);
    }
  } else if (protocol != Protocol::simple) {
    restamp(protocol, lines, step);
  }
  return {.buffer = message.buffer, .size = message.size};
}

Outgoing Payloads::copied(const Message& message, Protocol protocol, std::uint64_t step) {
  const auto buffer = arena_.take(message.size);
  NBX_CHECK(buffer);
  Arena::Buffer content = message.buffer;
  content.size = message.size;
  const MutableBytes from = arena_.bytes(content);
  const MutableBytes to = arena_.bytes(*buffer);
  std::copy(from.begin(), from.end(), to.begin());
  if (protocol != Protocol::simple) {
    restamp(protocol, to, step);
  }
  return {.buffer = *buffer, .size = message.size};
}

void Payloads::contribute(MutableBytes data, const Operation& operation, std::int32_t rank,
                          const Extent& extent) const {
  if (!contributes()) {
    return;
  }
  std::vector<std::byte> own(data.size());
  fill_pattern(own, operation.type, static_cast<std::uint32_t>(rank), extent.offset / type_size(operation.type));
  scale_input(own, operation.type, operation.op, ranks_);
  nccl::reduce(data, own, operation.type, operation.op);
}

std::vector<std::byte> Payloads::data(const Message& message, Protocol protocol, std::uint32_t bytes) const {
  std::vector<std::byte> out(bytes);
  Arena::Buffer content = message.buffer;
  content.size = message.size;
  const MutableBytes lines = arena_.bytes(content);
  if (protocol == Protocol::simple) {
    std::copy_n(lines.begin(), std::min(out.size(), lines.size()), out.begin());
  } else {
    decode(protocol, lines, out);
  }
  return out;
}

}  // namespace nbx::nccl
