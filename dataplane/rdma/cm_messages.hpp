// Between CM messages and the terms of a connection: what a REQ asks and whether it can be had (IBTA 12.6.5, 12.6.7.2,
// 12.6.8), what we ask ourselves, and what of it a queue pair gets. No state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "rdma/cm_table.hpp"

namespace nbx::rdma {

/// As much of `from` as fits behind the first `at` bytes.
template <std::size_t Size>
void put(ConstBytes from, std::array<std::byte, Size>& to, std::size_t at = 0) {
  std::ranges::copy(from.first(std::min(from.size(), Size - at)), to.begin() + static_cast<std::ptrdiff_t>(at));
}

/// Why a REQ is refused; `info` is the additional rejection information (table 102).
struct Refusal {
  wire::RejReason reason{};
  std::uint8_t info_size = 0;
  std::array<std::byte, 16> info{};
};

/// Nothing when the REQ can be had. `reply_path` leads back to its sender.
[[nodiscard]] std::optional<Refusal> check_req(const wire::CmReq& req, const wire::Path& reply_path) noexcept;

/// The passive side's view of a REQ. Its depths are what the peer allows; our QPN and PSN are still open.
[[nodiscard]] CmTerms terms_of(const wire::CmReq& req, const wire::Path& reply_path) noexcept;
/// The active side's first offer.
[[nodiscard]] CmTerms terms_of(const ConnectParam& param, const QpAttr& attr, Psn starting_psn) noexcept;
/// The active side's offer becomes what the REP leaves of it.
void settle(CmTerms& terms, const wire::CmRep& rep) noexcept;

/// `private_data` lies in `req` and is shorter by the A11 header where the service has one.
[[nodiscard]] ConnectRequest describe(const wire::CmReq& req, GhostId ghost, const CmTerms& terms) noexcept;

/// `terms` are ours as terms_of() made them.
[[nodiscard]] wire::CmReq make_req(const ConnectParam& param, const CmTerms& terms, const CmConfig& config) noexcept;
/// `terms` are settled.
[[nodiscard]] wire::CmRep make_rep(const CmTerms& terms, const AcceptParam& param) noexcept;

/// Bytes of private data that fit a REQ for `service_id`.
[[nodiscard]] std::size_t req_private_data_max(std::uint64_t service_id) noexcept;

/// `created` with what `terms` say of the peer.
[[nodiscard]] QpAttr connected_attr(const QpAttr& created, const CmTerms& terms) noexcept;

/// The GUID that RoCE channel adapters derive from their MAC (EUI-64). Peers tell CMs apart by it.
[[nodiscard]] std::uint64_t ca_guid(const Mac& mac) noexcept;

/// 4.096 us * 2^code (12.6.5), held between 4 ms and 9 s so that no peer makes us hurry or wait without end.
[[nodiscard]] Duration response_time(std::uint8_t code) noexcept;

}  // namespace nbx::rdma
