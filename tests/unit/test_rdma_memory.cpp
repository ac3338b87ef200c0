// Regions in memory that another thread polls: as any other to the peer, and written in order.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <vector>

#include "rdma/memory.hpp"

namespace nbx::rdma {
namespace {

constexpr std::uint64_t base = 0x10000;

RegionSpec polled(MutableBytes memory) {
  return {
      .addr = base, .length = memory.size(), .backing = Backing::external, .external = memory.data(), .polled = true};
}

TEST(PolledRegion, HoldsWhatWasWrittenAtAnyPlace) {
  std::array<std::byte, 64> source{};
  for (std::size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<std::byte>(i + 1);
  }
  for (std::size_t at = 0; at < 9; ++at) {
    for (std::size_t size = 0; size < 40; ++size) {
      alignas(8) std::array<std::byte, 64> memory{};
      std::array<std::byte, 64> expected{};
      std::memcpy(expected.data() + at, source.data() + 3, size);
      Region region(polled(memory));
      region.write(base + at, ConstBytes{source}.subspan(3, size));
      EXPECT_EQ(memory, expected) << at << " " << size;
    }
  }
}

std::byte* pages = nullptr;
constexpr std::size_t page = 4096;
constexpr std::size_t half = 512;  // of the message, in each page

/// Ends the process at the first touch of the second page: with 0 when the first is complete.
void on_fault(int) { _exit(std::count(pages + page - half, pages + page, std::byte{1}) == half ? 0 : 1); }

// Whoever sees the flag at the end of a line may read what is in front of it (LL, LL128).
TEST(PolledRegion, LowerAddressesAreWrittenFirst) {
  void* memory = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  pages = static_cast<std::byte*>(memory);
  ASSERT_EQ(mprotect(pages + page, page, PROT_NONE), 0);
  Region region(polled({pages, 2 * page}));
  std::vector<std::byte> message(2 * half, std::byte{1});
  EXPECT_EXIT(
      {
        std::signal(SIGSEGV, on_fault);
        region.write(base + page - half, message);
      },
      testing::ExitedWithCode(0), "");
  munmap(memory, 2 * page);
}

}  // namespace
}  // namespace nbx::rdma
