// The wire room: opcode table, parser, builders, ICRC and MADs against the standard and against captures.
#include <gtest/gtest.h>

#include "wire/opcode.hpp"

namespace nbx::wire {
namespace {

TEST(Opcode, HeaderSizesFollowTable38) {
  EXPECT_EQ(traits(Opcode::rc_rdma_write_only_with_immediate).header_size, 16 + 4);
  EXPECT_EQ(traits(Opcode::rc_atomic_acknowledge).header_size, 4 + 8);
  EXPECT_EQ(traits(Opcode::rc_compare_swap).header_size, 28);
  EXPECT_EQ(traits(Opcode::ud_send_only_with_immediate).header_size, 8 + 4);
  EXPECT_EQ(traits(Opcode::cnp).header_size, 16);
  EXPECT_FALSE(traits(std::uint8_t{0x15}).known());
}

}  // namespace
}  // namespace nbx::wire
