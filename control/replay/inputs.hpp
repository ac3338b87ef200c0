// The frames that ports receive, from captures: one per port, or one with an interface for each.
#pragma once

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "capture/reader.hpp"

namespace nbx::replay {

/// A capture, and whose frames are in it.
struct InputFile {
  std::string path;
  std::string port;  // empty: of the only port, or of those that its interfaces are called as
};

class Inputs {
 public:
  /// `ports`: what they are called.
  static Result<std::unique_ptr<Inputs>> open(const std::vector<InputFile>& files, std::vector<std::string> ports);

  struct Arrival {
    std::size_t port = 0;
    const capture::Record* record = nullptr;  // until the next call
    bool by_interface = false;                // whose name is the port's, as in captures of the emulator's own
  };
  /// The earliest of all that are left; of equal ones that of the first file. nullopt: there are no more.
  Result<std::optional<Arrival>> next();

  /// The first time in any file; 0 when all are empty.
  [[nodiscard]] std::int64_t first_ns() const noexcept { return first_ns_; }

 private:
  struct Source {
    InputFile file;
    std::ifstream stream;
    std::optional<capture::Reader> reader;
    capture::Record record;
    bool waits = false;  // the record is there, and was not handed out
  };

  explicit Inputs(std::vector<std::string> ports) : ports_(std::move(ports)) {}
  /// Reads the next record of `source`, if there is one.
  static std::optional<Error> advance(Source& source);
  [[nodiscard]] Result<std::size_t> port_of(const Source& source) const;

  std::vector<std::string> ports_;
  std::vector<std::unique_ptr<Source>> sources_;
  Source* handed_out_ = nullptr;  // its record was, and is read on at the next call
  std::int64_t first_ns_ = 0;
};

}  // namespace nbx::replay
