// IRN's headline (Mittal et al., SIGCOMM 2018): selective repeat without PFC beats go-back-N with PFC, and go-back-N
// without PFC is the worst by far.
#include <gtest/gtest.h>

#include <cstdio>

#include "theory/irn.hpp"

namespace nbx::test {
namespace {

TEST(Irn, selective_repeat_without_pfc_beats_go_back_n_with_it) {
  for (const std::uint64_t seed : {1U, 2U}) {
    std::array<IrnOutcome, irn_schemes.size()> outcomes;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      outcomes[i] = run_irn(irn_schemes[i], 0.7, seed);
      EXPECT_TRUE(outcomes[i].complete) << irn_schemes[i].name;
    }
    const auto& [irn, irn_pfc, roce_pfc, roce] = outcomes;
    std::printf("mean slowdown: IRN %.2f, IRN with PFC %.2f, RoCE with PFC %.2f, RoCE %.2f; dropped %lu and %lu\n",
                irn.slowdown, irn_pfc.slowdown, roce_pfc.slowdown, roce.slowdown,
                static_cast<unsigned long>(irn.dropped), static_cast<unsigned long>(roce.dropped));
    EXPECT_EQ(irn_pfc.dropped, 0U);
    EXPECT_EQ(roce_pfc.dropped, 0U);
    EXPECT_GT(irn.dropped, 0U);
    const double better = 1 - irn.slowdown / roce_pfc.slowdown;  // the abstract: by 6 to 83 %
    EXPECT_GT(better, 0.3);
    EXPECT_LT(better, 0.83);
    EXPECT_GT(roce.slowdown, 3 * roce_pfc.slowdown);
    EXPECT_NEAR(irn_pfc.slowdown / irn.slowdown, 1, 0.3);  // IRN does not need PFC
  }
}

}  // namespace
}  // namespace nbx::test
