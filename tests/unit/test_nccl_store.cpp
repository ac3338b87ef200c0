// The missing workers of a PyTorch job, against the bytes of PyTorch 1.13's store; tests/nccl/test_workers.py runs
// them against the store itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

#include "nccl-glue/store/missing_workers.hpp"

namespace nbx::nccl::store {
namespace {

using testing::HasSubstr;

std::string number(std::uint64_t value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string text(std::string_view word) { return number(word.size()) + std::string(word); }

std::string added(std::string_view key, std::uint64_t amount) { return "\x03" + text(key) + number(amount); }
std::string waited(std::string_view key) { return "\x05" + number(1) + text(key); }

std::string as_string(const std::vector<std::byte>& bytes) {
  std::string result;
  for (const std::byte byte : bytes) {
    result += std::to_integer<char>(byte);
  }
  return result;
}

std::string answer(MissingWorkers& workers, const std::string& bytes) {
  const Result<std::vector<std::byte>> out = workers.receive(std::as_bytes(std::span(bytes)));
  return out ? as_string(*out) : out.error().message;
}

const std::string exists(1, '\0');
constexpr std::string_view first_barrier = "/default_pg/store_based_barrier_key:1";
constexpr std::string_view second_barrier = "/default_pg/store_based_barrier_key:2";

TEST(MissingWorkers, CountThemselvesInAtTheStartAndAtEveryBarrier) {
  MissingWorkers workers(62);
  EXPECT_EQ(as_string(workers.start()), added("init/", 62));
  EXPECT_EQ(answer(workers, number(63)), waited(first_barrier));
  EXPECT_EQ(workers.barriers(), 0);
  EXPECT_EQ(answer(workers, exists), added(first_barrier, 62));
  EXPECT_EQ(answer(workers, number(64)), waited(second_barrier));
  EXPECT_EQ(answer(workers, exists), added(second_barrier, 62));
  EXPECT_EQ(workers.barriers(), 2);
}

TEST(MissingWorkers, TakeAnswersInAnyPieces) {
  MissingWorkers workers(2);
  static_cast<void>(workers.start());
  const std::string sum = number(3);
  EXPECT_EQ(answer(workers, sum.substr(0, 5)), "");
  EXPECT_EQ(answer(workers, sum.substr(5) + exists), waited(first_barrier) + added(first_barrier, 2));
}

TEST(MissingWorkers, PutTheLaunchersPrefixBeforeBarriersOnly) {
  MissingWorkers workers(2, "/worker/attempt_0");
  EXPECT_EQ(as_string(workers.start()), added("init/", 2));
  EXPECT_EQ(answer(workers, number(2)), waited("//worker/attempt_0/default_pg/store_based_barrier_key:1"));
}

TEST(MissingWorkers, RefuseWhatNoStoreAnswers) {
  MissingWorkers less(5);
  static_cast<void>(less.start());
  EXPECT_THAT(answer(less, number(4)), HasSubstr("counted 4 workers after 5"));
  MissingWorkers cancelled(5);
  static_cast<void>(cancelled.start());
  EXPECT_THAT(answer(cancelled, number(5) + "\x01"), HasSubstr("ended the wait for " + std::string(first_barrier)));
}

}  // namespace
}  // namespace nbx::nccl::store
