// Which keys are surely not in a table: a Bloom filter of one word per look-up, so that what is in no table costs one
// load, which nothing waits for, and one branch that is foreseen. F. Putze, P. Sanders, J. Singler, "Cache-, Hash-, and
// Space-Efficient Bloom Filters", 2007, section 3.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nbx::events {

class KeyFilter {
 public:
  /// For up to `keys` of them, of which fewer than one in a thousand others are taken.
  explicit KeyFilter(std::size_t keys) : words_(std::bit_ceil(keys / keys_of_word + 1)) {}

  /// Hashes are mixed: each of their bits depends on all of the key.
  void add(std::uint64_t hash) noexcept { words_[word_of(hash)] |= bits_of(hash); }
  [[nodiscard]] bool may_have(std::uint64_t hash) const noexcept {
    const std::uint64_t bits = bits_of(hash);
    return (words_[word_of(hash)] & bits) == bits;
  }

 private:
  static constexpr std::size_t keys_of_word = 2;
  static constexpr unsigned bits_of_key = 4;

  [[nodiscard]] std::size_t word_of(std::uint64_t hash) const noexcept { return hash >> 40U & (words_.size() - 1); }
  static std::uint64_t bits_of(std::uint64_t hash) noexcept {
    std::uint64_t bits = 0;
    for (unsigned i = 0; i < bits_of_key; ++i) {
      bits |= std::uint64_t{1} << (hash >> (16 + 6 * i) & 63U);
    }
    return bits;
  }

  std::vector<std::uint64_t> words_;
};

}  // namespace nbx::events
