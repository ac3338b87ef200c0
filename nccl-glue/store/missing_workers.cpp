#include "nccl-glue/store/missing_workers.hpp"

#include <cstring>

namespace nbx::nccl::store {
namespace {

// Of the store's query types; the others are for workers with something to say.
constexpr std::uint8_t query_add = 3;   // key, 8-byte amount; answer: the 8-byte sum
constexpr std::uint8_t query_wait = 5;  // 8-byte number of keys, keys; answer, once all exist: 0
constexpr std::byte keys_exist{0};

/// Every worker counts itself here before anything else. The store adds no prefix to this key, and "/" to others.
constexpr const char* workers_key = "init/";
constexpr const char* barrier_prefix = "default_pg/store_based_barrier_key:";

void put(std::vector<std::byte>& out, std::uint8_t value) { out.push_back(static_cast<std::byte>(value)); }

void put(std::vector<std::byte>& out, std::uint64_t value) {
  static_assert(std::endian::native == std::endian::little);
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void put(std::vector<std::byte>& out, const std::string& text) {
  put(out, std::uint64_t{text.size()});
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

MissingWorkers::MissingWorkers(std::int64_t missing, std::string prefix)
    : missing_(missing), prefix_(std::move(prefix)) {}

std::string MissingWorkers::barrier_key() const {
  const std::string key = barrier_prefix + std::to_string(barriers_ + 1);
  return "/" + (prefix_.empty() ? key : prefix_ + "/" + key);
}

void MissingWorkers::add(std::vector<std::byte>& out, const std::string& key) const {
  put(out, query_add);
  put(out, key);
  put(out, static_cast<std::uint64_t>(missing_));
}

/// The first real worker at a barrier makes its key.
void MissingWorkers::wait(std::vector<std::byte>& out) const {
  put(out, query_wait);
  put(out, std::uint64_t{1});
  put(out, barrier_key());
}

std::vector<std::byte> MissingWorkers::start() {
  std::vector<std::byte> out;
  add(out, workers_key);
  awaited_ = Awaited::counted;
  return out;
}

Result<std::vector<std::byte>> MissingWorkers::receive(ConstBytes bytes) {
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  std::vector<std::byte> out;
  for (;;) {
    const bool counted = awaited_ == Awaited::counted;
    const std::size_t size = counted ? sizeof(std::int64_t) : 1;
    if (pending_.size() < size) {
      return out;
    }
    if (counted) {
      std::int64_t sum = 0;
      std::memcpy(&sum, pending_.data(), sizeof sum);
      if (sum < missing_) {
        return Error{"the store counted " + std::to_string(sum) + " workers after " + std::to_string(missing_) +
                     " were added: not the store of PyTorch 1.13, or another job's"};
      }
      wait(out);
      awaited_ = Awaited::arrived;
    } else {
      if (pending_.front() != keys_exist) {
        return Error{"the store ended the wait for " + barrier_key() + " without the key"};
      }
      add(out, barrier_key());
      barriers_++;
      awaited_ = Awaited::counted;
    }
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(size));
  }
}

}  // namespace nbx::nccl::store
