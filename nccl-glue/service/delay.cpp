#include "nccl-glue/service/delay.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>

#include "base/rng.hpp"
#include "nccl-glue/service/delay_library.h"

namespace nbx::nccl {
namespace {

Duration draw(const Skew& skew, Rng& rng) {
  switch (skew.shape) {
    case SkewShape::constant:
      return skew.mean;
    case SkewShape::uniform:
      return Duration{static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(2 * skew.mean.count()) + 1))};
    case SkewShape::exponential:
      return Duration{static_cast<std::int64_t>(-std::log1p(-rng.unit()) * static_cast<double>(skew.mean.count()))};
  }
  return {};
}

class FormulaModel : public DelayModel {
 public:
  FormulaModel(DelayOptions options, std::uint32_t path_mtu, std::uint64_t seed)
      : options_(std::move(options)), path_mtu_(path_mtu), seed_(seed) {}

  [[nodiscard]] Duration skew(std::int32_t rank, std::int32_t /*ranks*/, std::uint64_t sequence) const override {
    Rng rng{seed_ ^ (sequence * 0x9e37'79b9'7f4a'7c15ULL) ^ (static_cast<std::uint64_t>(rank) << 40U)};
    Duration sum = draw(options_.skew, rng);
    if (!options_.trace.empty()) {
      sum += options_.trace[sequence % options_.trace.size()];
    }
    for (const Straggler& straggler : options_.stragglers) {
      if (static_cast<std::int32_t>(straggler.rank) == rank && hits(straggler, sequence)) {
        sum += straggler.delay;
      }
    }
    return sum;
  }

  [[nodiscard]] Duration work(const MessageSize& size, bool reduces) const override {
    const Duration reduction = reduces ? serialize_time_ceil(size.data, options_.hop.reduce_rate) : Duration::zero();
    return reduction + (options_.table.empty() ? options_.hop.per_message : Duration::zero());
  }

  [[nodiscard]] Duration hop(const MessageSize& size, bool reduces) const override {
    const Duration link = options_.table.empty() ? options_.hop.latency + on_link(size.wire) : from_table(size.wire);
    return link + work(size, reduces);
  }

  [[nodiscard]] bool uniform() const override { return options_.skew.shape == SkewShape::constant; }

  [[nodiscard]] std::vector<std::int32_t> exceptions(std::uint64_t sequence) const override {
    std::vector<std::int32_t> ranks;
    for (const Straggler& straggler : options_.stragglers) {
      if (hits(straggler, sequence)) {
        ranks.push_back(static_cast<std::int32_t>(straggler.rank));
      }
    }
    return ranks;
  }

 private:
  static bool hits(const Straggler& straggler, std::uint64_t sequence) {
    return sequence >= straggler.first &&
           (sequence - straggler.first) % std::max<std::uint64_t>(straggler.every, 1) == 0;
  }

  /// As RoCEv2 packets over IPv4 on Ethernet, counted as a profile's rate counts them.
  [[nodiscard]] Duration on_link(std::uint64_t bytes) const {
    constexpr std::uint64_t headers = 14 + 20 + 8 + 12;                          // Ethernet, IPv4, UDP, BTH
    constexpr std::uint64_t per_packet = headers + 4 + ethernet_overhead_bytes;  // ICRC; preamble, FCS, gap
    constexpr std::uint64_t per_message = 16 + 4;                                // RETH, ImmDt
    const std::uint64_t packets = std::max<std::uint64_t>((bytes + path_mtu_ - 1) / path_mtu_, 1);
    return serialize_time_ceil(bytes + packets * per_packet + per_message, options_.hop.rate);
  }

  [[nodiscard]] Duration from_table(std::uint64_t bytes) const {
    const auto& table = options_.table;
    const auto above = std::find_if(table.begin(), table.end(), [&](const HopRow& row) { return row.bytes >= bytes; });
    if (above == table.end()) {
      return table.back().time;
    }
    if (above == table.begin() || above->bytes == bytes) {
      return above->time;
    }
    const HopRow& below = *(above - 1);
    const double share = static_cast<double>(bytes - below.bytes) / static_cast<double>(above->bytes - below.bytes);
    return below.time + Duration{std::llround(share * static_cast<double>((above->time - below.time).count()))};
  }

  DelayOptions options_;
  std::uint32_t path_mtu_;
  std::uint64_t seed_;
};

/// A user's library; it stays loaded.
class LibraryModel final : public DelayModel {
 public:
  LibraryModel(decltype(&nbx_delay_skew) skew_of, decltype(&nbx_delay_hop) hop_of) : skew_(skew_of), hop_(hop_of) {}

  [[nodiscard]] Duration skew(std::int32_t rank, std::int32_t ranks, std::uint64_t sequence) const override {
    return Duration{std::max<std::int64_t>(skew_(rank, ranks, sequence), 0)};
  }
  [[nodiscard]] Duration work(const MessageSize& /*size*/, bool /*reduces*/) const override { return {}; }
  [[nodiscard]] Duration hop(const MessageSize& size, bool reduces) const override {
    return Duration{std::max<std::int64_t>(hop_(size.wire, reduces ? 1 : 0), 0)};
  }
  [[nodiscard]] bool uniform() const override { return false; }
  [[nodiscard]] std::vector<std::int32_t> exceptions(std::uint64_t /*sequence*/) const override { return {}; }

 private:
  decltype(&nbx_delay_skew) skew_;
  decltype(&nbx_delay_hop) hop_;
};

}  // namespace

Result<std::unique_ptr<DelayModel>> make_delay_model(const DelayOptions& options, std::uint32_t path_mtu,
                                                     std::uint64_t seed) {
  if (options.library.empty()) {
    return std::unique_ptr<DelayModel>{std::make_unique<FormulaModel>(options, path_mtu, seed)};
  }
  void* const library = dlopen(options.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error{"delay library: " + std::string{dlerror()}};
  }
  const auto abi = reinterpret_cast<decltype(&nbx_delay_abi)>(dlsym(library, "nbx_delay_abi"));
  const auto skew = reinterpret_cast<decltype(&nbx_delay_skew)>(dlsym(library, "nbx_delay_skew"));
  const auto hop = reinterpret_cast<decltype(&nbx_delay_hop)>(dlsym(library, "nbx_delay_hop"));
  if (abi == nullptr || skew == nullptr || hop == nullptr) {
    return Error{"delay library '" + options.library +
                 "' does not export nbx_delay_abi, nbx_delay_skew and nbx_delay_hop"};
  }
  if (abi() != 1) {
    return Error{"delay library '" + options.library + "' has interface " + std::to_string(abi()) + ", not 1"};
  }
  return std::unique_ptr<DelayModel>{std::make_unique<LibraryModel>(skew, hop)};
}

RunReadiness::RunReadiness(const DelayModel& model, std::int32_t ranks, std::uint64_t sequence, Instant called,
                           const std::function<std::int32_t(std::uint32_t)>& rank_at, std::uint32_t length)
    : length_(length), common_(called) {
  const auto consider = [&](std::uint32_t distance, Instant ready) {
    if (ready > common_) {
      late_.push_back({distance, ready});
    }
  };
  if (!model.uniform()) {
    for (std::uint32_t d = 0; d < length; ++d) {
      consider(d, called + model.skew(rank_at(d), ranks, sequence));
    }
    return;
  }
  const std::vector<std::int32_t> exceptions = model.exceptions(sequence);
  // Any rank without an exception tells what all have in common.
  std::int32_t plain = 0;
  while (std::find(exceptions.begin(), exceptions.end(), plain) != exceptions.end()) {
    ++plain;
  }
  common_ = called + model.skew(plain, ranks, sequence);
  if (exceptions.empty()) {
    return;
  }
  for (std::uint32_t d = 0; d < length; ++d) {
    const std::int32_t rank = rank_at(d);
    if (std::find(exceptions.begin(), exceptions.end(), rank) != exceptions.end()) {
      consider(d, called + model.skew(rank, ranks, sequence));
    }
  }
}

const RunReadiness::Prefix& RunReadiness::prefix(Duration hop) {
  const auto known = std::find_if(prefixes_.begin(), prefixes_.end(), [&](const Prefix& p) { return p.hop == hop; });
  if (known != prefixes_.end()) {
    return *known;
  }
  Prefix made{.hop = hop, .latest = {}};
  made.latest.reserve(late_.size());
  Instant latest = Instant{} - Duration::max();
  for (const Late& late : late_) {
    latest = std::max(latest, late.ready + hop * late.distance);
    made.latest.push_back(latest);
  }
  return prefixes_.emplace_back(std::move(made));
}

Instant RunReadiness::called(std::uint32_t distance) const noexcept {
  const auto late = std::lower_bound(late_.begin(), late_.end(), distance,
                                     [](const Late& l, std::uint32_t d) { return l.distance < d; });
  return late != late_.end() && late->distance == distance ? late->ready : common_;
}

std::pair<std::uint32_t, Instant> RunReadiness::latest() const noexcept {
  std::pair<std::uint32_t, Instant> last{0, common_};
  for (const Late& late : late_) {
    if (late.ready > last.second) {
      last = {late.distance, late.ready};
    }
  }
  return last;
}

Instant RunReadiness::own(std::uint32_t distance, Duration work, Duration hop) {
  const Instant at = called(distance) + hop * distance;
  return distance == 0 ? at : std::max(at, reached(distance - 1, hop) + work);
}

Instant RunReadiness::reached(std::uint32_t distance, Duration hop) {
  const Instant at = common_ + hop * distance;
  const auto end = std::upper_bound(late_.begin(), late_.end(), distance,
                                    [](std::uint32_t d, const Late& late) { return d < late.distance; });
  if (end == late_.begin()) {
    return at;
  }
  return std::max(at, prefix(hop).latest[static_cast<std::size_t>(end - late_.begin() - 1)]);
}

Instant RunReadiness::passed(Instant arrival, Duration work, Duration hop) {
  return std::max(arrival + hop * (length_ - 1), reached(length_ - 1, hop)) + work;
}

}  // namespace nbx::nccl
