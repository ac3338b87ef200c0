// The workers of a PyTorch job that do not exist, as its TCPStore sees them: one client counts them in at the start and
// at every barrier of init_process_group and new_group, so that the real workers go on. Sans-I/O. The protocol is that
// of PyTorch 1.13 (c10d TCPStore and distributed_c10d.py): a query is one byte and its arguments, integers are
// little-endian, a string is an 8-byte length and its bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace nbx::nccl::store {

class MissingWorkers {
 public:
  /// `prefix` is what the launcher puts before keys, as in "/worker/attempt_0" of torchrun's agent; usually nothing.
  explicit MissingWorkers(std::int64_t missing, std::string prefix = {});

  /// What to send once connected.
  [[nodiscard]] std::vector<std::byte> start();
  /// What to send next, given more of what the store answers; an error when that fits no query.
  [[nodiscard]] Result<std::vector<std::byte>> receive(ConstBytes bytes);
  /// Barriers that the workers were counted in to.
  [[nodiscard]] std::int64_t barriers() const { return barriers_; }

 private:
  enum class Awaited { counted, arrived };

  [[nodiscard]] std::string barrier_key() const;
  void add(std::vector<std::byte>& out, const std::string& key) const;
  void wait(std::vector<std::byte>& out) const;

  std::int64_t missing_;
  std::string prefix_;
  std::int64_t barriers_ = 0;
  Awaited awaited_ = Awaited::counted;
  std::vector<std::byte> pending_;
};

}  // namespace nbx::nccl::store
