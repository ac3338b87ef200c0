// Asking a running nbxd over its control socket, and the commands that do.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.hpp"

namespace nbx::client {

using Json = nlohmann::ordered_json;

/// Where nbxd listens unless told otherwise: in $XDG_RUNTIME_DIR, or /run for root, or /tmp.
[[nodiscard]] std::string default_control_socket();

struct Options {
  std::string socket = default_control_socket();
  bool json = false;
  bool watch = false;  // again every second until interrupted
};

class Client {
 public:
  explicit Client(std::string socket) : socket_(std::move(socket)) {}

  /// The document that nbxd answers; an error is one line for the user.
  Result<Json> get(const std::string& path) const;
  Result<Json> post(const std::string& path, const Json& body) const;

 private:
  std::string socket_;
};

// Commands answer the exit status: 0, or 1 when nbxd does not answer or refuses.

/// `nbx status`, `ports`, `qps`, `ghosts`, `report`: the question is the command's name.
int show(const std::string& question, const Options& options, std::ostream& out, std::ostream& err);
/// Of one port, or of all when `port` is empty; as text those that are not zero.
int counters(const std::string& port, const Options& options, std::ostream& out, std::ostream& err);

struct CaptureStart {
  std::string file;
  std::string filter;  // as tcpdump's; empty: every frame
  std::uint32_t snaplen = 0;
  bool per_port = false;
};
int start_capture(const CaptureStart& start, const Options& options, std::ostream& out, std::ostream& err);
/// Has the flight recorder write a dump.
int trigger_capture(const Options& options, std::ostream& out, std::ostream& err);
int stop_capture(const Options& options, std::ostream& out, std::ostream& err);

/// `values` are KEY=VALUE.
int set(const std::string& port, const std::vector<std::string>& values, const Options& options, std::ostream& out,
        std::ostream& err);
/// A path, or the name of a shipped profile.
int load_profile(const std::string& port, const std::string& profile, const Options& options, std::ostream& out,
                 std::ostream& err);
struct TraceOrder {
  std::string port;   // empty: all
  std::string ghost;  // empty: all
  std::uint32_t qpn = 0;
  bool rates_only = false;
  std::size_t steps_max = 65'536;
  std::chrono::nanoseconds time = std::chrono::nanoseconds::max();
};
/// Traces until `time` is over or the user interrupts; CSV, or one JSON document, to `out`.
int trace(const TraceOrder& order, const Options& options, std::ostream& out, std::ostream& err);
/// Of the emulated network: `part` is storm, slow_receiver or traffic. Starts what `values`, KEY=VALUE, describe.
int start_part(const std::string& port, const std::string& part, const std::vector<std::string>& values,
               const Options& options, std::ostream& out, std::ostream& err);
int stop_part(const std::string& port, const std::string& part, const std::string& name, const Options& options,
              std::ostream& out, std::ostream& err);
struct LinkChange {
  bool down = true;
  std::string time;       // down for so long; empty: until it is taken up
  std::string direction;  // from_node or to_node; empty: both
  std::string cable;      // of the emulated network; empty: the link of the port
};
int change_link(const std::string& port, const LinkChange& change, const Options& options, std::ostream& out,
                std::ostream& err);

}  // namespace nbx::client
