// Counts from 1 and says which of the counted are on a list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace nbx {

class Ordinals {
 public:
  Ordinals() = default;
  explicit Ordinals(std::vector<std::uint64_t> numbers) : numbers_(std::move(numbers)) {
    std::sort(numbers_.begin(), numbers_.end());
    numbers_.erase(std::unique(numbers_.begin(), numbers_.end()), numbers_.end());
  }

  [[nodiscard]] bool empty() const noexcept { return numbers_.empty(); }
  bool next_is_listed() noexcept {
    ++count_;
    if (next_ == numbers_.size() || numbers_[next_] != count_) {
      return false;
    }
    ++next_;
    return true;
  }

 private:
  std::vector<std::uint64_t> numbers_;  // ascending, each once
  std::size_t next_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace nbx
