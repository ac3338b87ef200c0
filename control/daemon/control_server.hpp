// The control socket: JSON over HTTP on a UNIX socket. docs: GET /status /ports /qps /ghosts /counters[?port=] /report
// and /metrics; POST /capture, /profile and /set. Errors are {"error": text} with status 400.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "base/result.hpp"
#include "daemon/emulator.hpp"

namespace httplib {
class Server;
}

namespace nbx::daemon {

class ControlServer {
 public:
  static Result<std::unique_ptr<ControlServer>> start(const std::string& path, Emulator& emulator);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;
  ControlServer(ControlServer&&) = delete;
  ControlServer& operator=(ControlServer&&) = delete;

 private:
  ControlServer(std::string path, Emulator& emulator);
  void add_routes();

  std::string path_;
  Emulator& emulator_;
  std::unique_ptr<httplib::Server> server_;
  std::thread thread_;
};

}  // namespace nbx::daemon
