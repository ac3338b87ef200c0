#include "frame/pool.hpp"

#include <algorithm>

namespace nbx {

FramePool::~FramePool() { source_.give({free_.data(), count_}); }

Frame* FramePool::alloc(std::size_t size) noexcept {
  if (count_ == 0) {
    count_ = source_.take({free_.data(), bulk});
    if (count_ == 0) {
      return nullptr;
    }
  }
  Frame* frame = free_[count_ - 1];
  if (size > frame->capacity) {
    return nullptr;
  }
  --count_;
  frame->size = static_cast<std::uint32_t>(size);
  frame->parsed = {};
  frame->treatment = {};
  frame->ghost = no_ghost;
  return frame;
}

void FramePool::free(Frame& frame) noexcept {
  if (count_ == depth) {
    source_.give({free_.data() + depth - bulk, bulk});
    count_ -= bulk;
  }
  free_[count_++] = &frame;
}

void FramePool::free_all(FrameList& frames) noexcept {
  while (Frame* frame = frames.pop_front()) {
    free(*frame);
  }
}

SlabSource::SlabSource(std::size_t frames, std::size_t capacity)
    : total_(frames),
      capacity_(capacity),
      free_count_(frames),
      bytes_(new std::byte[frames * capacity]),
      frames_(new Frame[frames]),
      free_(new Frame*[frames]) {
  for (std::size_t i = 0; i < frames; ++i) {
    free_[i] = &frames_[i];
    frames_[i].data = bytes_.get() + i * capacity_;
    frames_[i].capacity = static_cast<std::uint32_t>(capacity_);
  }
}

std::size_t SlabSource::take(std::span<Frame*> frames) noexcept {
  const std::size_t n = std::min(frames.size(), free_count_);
  for (std::size_t i = 0; i < n; ++i) {
    frames[i] = free_[--free_count_];
  }
  return n;
}

void SlabSource::give(std::span<Frame* const> frames) noexcept {
  for (Frame* frame : frames) {
    free_[free_count_++] = frame;
  }
}

}  // namespace nbx
