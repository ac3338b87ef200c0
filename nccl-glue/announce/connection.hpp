// The TCP connection of this process to the ghosts. Opening it is bounded and ends with their Welcome or the reason why
// not; then a thread waits for what they say, and reports the end of the conversation once.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/unique_fd.hpp"
#include "nccl-glue/announce/codec.hpp"
#include "nccl-glue/announce/settings.hpp"

namespace nbx::nccl::announce {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// Says hello and waits for the welcome.
  [[nodiscard]] static Result<std::shared_ptr<Connection>> open(const Settings& settings, const Hello& hello);

  /// From now on a thread listens. It calls `ended` once: with the failure that the ghosts report, or with what
  /// happened to the connection.
  void listen(std::function<void(bool failure, const std::string& why)> ended);
  /// Writes whole records, those of one call together. What cannot be sent shows as the end of the connection.
  void send(ConstBytes records);

 private:
  Connection(UniqueFd socket, std::string peer) : socket_(std::move(socket)), peer_(std::move(peer)) {}
  /// The next record; an error says why there will be none.
  Result<Record> receive();

  UniqueFd socket_;
  std::string peer_;  // HOST:PORT
  Decoder decoder_;
  std::mutex sending_;
};

}  // namespace nbx::nccl::announce
