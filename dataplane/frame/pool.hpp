// Where frames come from and go to. The pool is a small stack of free frames in front of a bulk source, so the fast
// path neither allocates nor makes an indirect call per frame.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "frame/frame.hpp"

namespace nbx {

/// The bulk source behind a pool.
class FrameSource {
 public:
  /// Fills the front of `frames` and answers how many; data and capacity are set, the rest is as default-constructed.
  virtual std::size_t take(std::span<Frame*> frames) noexcept = 0;
  virtual void give(std::span<Frame* const> frames) noexcept = 0;
  virtual ~FrameSource() = default;
};

class FramePool {
 public:
  explicit FramePool(FrameSource& source) noexcept : source_(source) {}
  ~FramePool();
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;
  FramePool(FramePool&&) = delete;
  FramePool& operator=(FramePool&&) = delete;

  /// A frame of `size` bytes, contents undefined; nullptr when the source is empty or `size` exceeds a buffer.
  [[nodiscard]] Frame* alloc(std::size_t size) noexcept;
  void free(Frame& frame) noexcept;
  void free_all(FrameList& frames) noexcept;
  /// Free frames that the pool holds: taken from the source, but in nobody's hands.
  [[nodiscard]] std::size_t at_hand() const noexcept { return count_; }

 private:
  static constexpr std::size_t depth = 256;
  static constexpr std::size_t bulk = 64;

  FrameSource& source_;
  std::array<Frame*, depth> free_{};
  std::size_t count_ = 0;
};

/// Frames in one heap slab, for replays, simulations and tests. `outstanding()` is the leak check.
class SlabSource final : public FrameSource {
 public:
  SlabSource(std::size_t frames, std::size_t capacity);
  std::size_t take(std::span<Frame*> frames) noexcept override;
  void give(std::span<Frame* const> frames) noexcept override;
  [[nodiscard]] std::size_t outstanding() const noexcept { return total_ - free_count_; }

 private:
  std::size_t total_;
  std::size_t capacity_;
  std::size_t free_count_;
  std::unique_ptr<std::byte[]> bytes_;
  std::unique_ptr<Frame[]> frames_;
  std::unique_ptr<Frame*[]> free_;
};

}  // namespace nbx
