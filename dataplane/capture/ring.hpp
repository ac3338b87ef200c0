// A ring of pcapng blocks between the worker that captures and the thread that writes files. One producer, one
// consumer, fixed size. A block is contiguous: one that does not fit before the end starts at the beginning again.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/bytes.hpp"
#include "base/check.hpp"

namespace nbx::capture {

class RecordRing {
 public:
  /// What the ring knows of a block: a multiple of four bytes; the first word, its type, is not 0; the second is its
  /// size.
  static constexpr std::size_t alignment = 4;

  explicit RecordRing(std::size_t capacity) : capacity_(capacity), bytes_(std::make_unique<std::byte[]>(capacity)) {
    NBX_CHECK(capacity != 0 && capacity % alignment == 0);
  }

  /// Producer: lets `format(MutableBytes) -> size` write one record; it answers 0 when the room is too small.
  /// False when the ring has no room; then nothing was written.
  template <class Format>
  bool push(Format&& format) noexcept {
    const std::uint64_t write = write_.load(std::memory_order_relaxed);
    if (try_push(write, read_seen_, format)) {
      return true;
    }
    read_seen_ = read_.load(std::memory_order_acquire);
    return try_push(write, read_seen_, format);
  }

  /// Producer, while there is no consumer: takes away the oldest records until there is room. False when the record is
  /// larger than the ring.
  template <class Format>
  bool push_over(Format&& format) noexcept {
    while (!push(format)) {
      const ConstBytes oldest = front();
      if (oldest.empty()) {
        return false;
      }
      pop(oldest);
    }
    return true;
  }
  /// Bytes written, and taken or passed over, since the start.
  [[nodiscard]] std::uint64_t written() const noexcept { return write_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t read() const noexcept { return read_.load(std::memory_order_acquire); }

  /// Consumer: the oldest record, empty when there is none.
  [[nodiscard]] MutableBytes front() noexcept {
    std::uint64_t read = read_.load(std::memory_order_relaxed);
    if (read == write_.load(std::memory_order_acquire)) {
      return {};
    }
    if (word_at(read, 0) == skip) {
      read += to_end(read);
      read_.store(read, std::memory_order_release);
    }
    return {bytes_.get() + read % capacity_, word_at(read, 1)};
  }
  /// Consumer: gives back the record that front() answered.
  void pop(ConstBytes record) noexcept {
    read_.store(read_.load(std::memory_order_relaxed) + record.size(), std::memory_order_release);
  }
  /// Consumer: forgets every record.
  void clear() noexcept { read_.store(write_.load(std::memory_order_acquire), std::memory_order_release); }

 private:
  template <class Format>
  bool try_push(std::uint64_t write, std::uint64_t read, Format& format) noexcept {
    const std::uint64_t room = capacity_ - (write - read);
    const std::uint64_t tail = to_end(write);
    std::byte* at = bytes_.get() + write % capacity_;
    if (const std::size_t size = format(MutableBytes{at, std::min(room, tail)}); size != 0) {
      write_.store(write + size, std::memory_order_release);
      return true;
    }
    if (room <= tail) {
      return false;
    }
    const std::size_t size = format(MutableBytes{bytes_.get(), room - tail});
    if (size == 0) {
      return false;
    }
    std::memcpy(at, &skip, sizeof skip);
    write_.store(write + tail + size, std::memory_order_release);
    return true;
  }
  [[nodiscard]] std::uint64_t to_end(std::uint64_t position) const noexcept { return capacity_ - position % capacity_; }
  [[nodiscard]] std::uint32_t word_at(std::uint64_t position, std::size_t word) const noexcept {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes_.get() + position % capacity_ + word * sizeof value, sizeof value);
    return value;
  }

  static constexpr std::uint32_t skip = 0;  // "the next record is at the beginning"

  std::size_t capacity_;
  std::unique_ptr<std::byte[]> bytes_;
  // Positions count bytes since the start and never wrap.
  alignas(64) std::atomic<std::uint64_t> write_{0};
  std::uint64_t read_seen_ = 0;  // the producer's last look at read_
  alignas(64) std::atomic<std::uint64_t> read_{0};
};

}  // namespace nbx::capture
