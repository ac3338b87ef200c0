#include "nccl-glue/comm/gather.hpp"

namespace nbx::nccl {

namespace {

constexpr std::size_t send_at_once = 64 << 10;

std::int32_t around(std::int32_t rank, std::int32_t ranks) { return (rank % ranks + ranks) % ranks; }

}  // namespace

std::int32_t Gather::block_read(const RingEnd& end, std::int32_t step) const {
  return around(end.to_next ? end.ghost + step + 1 : end.ghost - step - 1, spec_.ranks);
}

std::int32_t Gather::block_written(const RingEnd& end, std::int32_t step) const {
  return around(end.to_next ? end.ghost - step : end.ghost + step, spec_.ranks);
}

Bytes Gather::block(std::int32_t rank) const {
  if (!spec_.is_real(rank)) {
    return spec_.ghost_block(rank);
  }
  const auto found = real_.find(rank);
  return found == real_.end() ? Bytes{} : found->second;
}

std::optional<std::string> Gather::read(std::size_t index, RingEnd& end) {
  Progress& progress = progress_[index];
  const std::size_t message_size = prefix_size + spec_.block_size;
  std::size_t taken = 0;
  while (progress.read < reads(end)) {
    const ConstBytes rest = ConstBytes(end.input).subspan(taken);
    const std::optional<std::int32_t> size = prefix_of(rest);
    if (!size) {
      break;
    }
    if (*size < 0 || static_cast<std::size_t>(*size) != spec_.block_size) {
      return "rank " + std::to_string(end.real) + " sends " + std::to_string(*size) + " bytes as its " + spec_.what +
             ", expected are " + std::to_string(spec_.block_size);
    }
    if (rest.size() < message_size) {
      break;
    }
    const std::int32_t rank = block_read(end, progress.read);
    if (spec_.is_real(rank)) {
      const ConstBytes body = rest.subspan(prefix_size, spec_.block_size);
      real_.try_emplace(rank, body.begin(), body.end());
    }
    taken += message_size;
    ++progress.read;
  }
  end.input.erase(end.input.begin(), end.input.begin() + static_cast<std::ptrdiff_t>(taken));
  return std::nullopt;
}

void Gather::write(std::size_t index, const RingEnd& end, const std::function<void(ConstBytes)>& send) {
  Progress& progress = progress_[index];
  Bytes out;
  while (progress.written < writes(end)) {
    // The peer waits for the size before it sends its own block, which ours may depend on.
    if (!progress.prefix_written) {
      append_prefix(out, spec_.block_size);
      progress.prefix_written = true;
    }
    const Bytes next = block(block_written(end, progress.written));
    if (next.empty()) {
      break;
    }
    out.insert(out.end(), next.begin(), next.end());
    progress.prefix_written = false;
    ++progress.written;
    if (out.size() >= send_at_once) {
      send(out);
      out.clear();
    }
  }
  if (!out.empty()) {
    send(out);
  }
}

bool Gather::reads_all(std::size_t index, const RingEnd& end) const { return progress_[index].read == reads(end); }

bool Gather::done(const std::vector<RingEnd>& ends) const {
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (!reads_all(i, ends[i]) || progress_[i].written != writes(ends[i])) {
      return false;
    }
  }
  return true;
}

}  // namespace nbx::nccl
