// A tree all-reduce on one channel through ghosts that hang together in the tree. Real ranks below them send up, a
// real rank above them (unless the root is among them) takes the sum and sends the result down.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "nccl-glue/plan/tree.hpp"
#include "nccl-glue/service/delay.hpp"
#include "nccl-glue/service/payload.hpp"

namespace nbx::nccl {

/// Ghosts connected by edges of the tree. In edges and out edges: 0.. are the real children's, the last one the real
/// parent's if there is one.
struct TreeGroup {
  struct Member {
    std::int32_t rank = -1;
    std::uint32_t depth = 0;  // below the top of the group
  };
  std::vector<Member> ghosts;
  std::vector<std::uint32_t> child_depth;  // of the ghost above each real child
  bool has_parent = false;

  [[nodiscard]] unsigned parent() const { return static_cast<unsigned>(child_depth.size()); }
};

class TreeTransfer final : public Transfer {
 public:
  /// `called[i]`: when place.ghosts[i] calls the operation.
  TreeTransfer(const PlannedOperation& planned, const TreePlan& plan, TreeGroup place, std::vector<Instant> called,
               const DelayModel& delay, Payloads& payloads);
  ~TreeTransfer() override;

  [[nodiscard]] std::uint64_t messages_in(unsigned edge) const override;
  [[nodiscard]] std::uint64_t messages_out(unsigned edge) const override;
  [[nodiscard]] Offer offer(unsigned edge, std::uint64_t i) const override;
  [[nodiscard]] Instant open(unsigned edge) const override;
  void received(unsigned edge, std::uint64_t i, const Message& message) override;
  [[nodiscard]] Instant ready(unsigned edge, std::uint64_t i) override;
  [[nodiscard]] Outgoing take(unsigned edge, std::uint64_t i, std::uint64_t step) override;
  [[nodiscard]] Steps steps() const override {
    return {.whole = planned_.decision.protocol == Protocol::ll ? plan_.clear_to_send() : 0};
  }
  [[nodiscard]] unsigned window() const override { return steps_in_flight; }

 private:
  /// What has come of chunk i.
  struct Chunk {
    std::vector<std::optional<Message>> up;  // from the children
    std::optional<Message> down;             // from the parent
    std::optional<Message> sum;              // at the root
    unsigned taken = 0;                      // by edges
  };

  [[nodiscard]] Chunk& chunk(std::uint64_t i);
  [[nodiscard]] Instant up_ready(std::uint64_t i);
  [[nodiscard]] Instant down_ready(std::uint64_t i);
  [[nodiscard]] Duration hop(std::uint64_t i, bool reduces) const;
  [[nodiscard]] Instant all_called(Duration hop) const;
  /// The sum of what is below, as a message of `step`; uses the children's messages up.
  [[nodiscard]] Outgoing sum(std::uint64_t i, std::uint64_t step, bool finished);
  [[nodiscard]] Outgoing take_down(unsigned edge, std::uint64_t i, std::uint64_t step);
  void drop(Chunk& c);

  PlannedOperation planned_;
  TreePlan plan_;
  TreeGroup place_;
  std::vector<Instant> called_;
  const DelayModel& delay_;
  Payloads& payloads_;
  std::unordered_map<std::uint64_t, Chunk> chunks_;
};

}  // namespace nbx::nccl
