// One pcapng file, complete in itself: section header, interfaces, packets, statistics with the losses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "capture/pcapng_writer.hpp"

namespace nbx::capture {

inline constexpr std::uint32_t snaplen_default = 262'144;  // tcpdump's and dumpcap's: more than any frame

struct CaptureFileOptions {
  struct Interface {
    std::string name;
    std::string description;
    BitRate speed{};  // unlimited(): not known
  };

  std::uint32_t snaplen = snaplen_default;
  std::string application = "NeuronaBox";
  std::string comment;  // of the section; empty: none
  std::vector<Interface> interfaces;
};

class CaptureFile {
 public:
  /// Where it cannot be created, error() says why.
  CaptureFile(std::string path, const CaptureFileOptions& options);

  /// Writes an enhanced packet block, as one of that interface; in order of time.
  void write(MutableBytes epb, std::uint32_t interface);
  /// Lets readers of the growing file see what was written.
  void flush();
  /// Writes the statistics, with what was lost by interface, and closes the file.
  void finish(const std::vector<std::uint64_t>& lost);

  [[nodiscard]] std::uint64_t packets() const noexcept { return packets_; }
  /// Bytes so far, and with the statistics.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_ + written_.size() * isb_size; }
  /// Why nothing more is written.
  [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  void append(ConstBytes bytes);
  void fail(const char* what);

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::vector<std::uint64_t> written_;  // packets, by interface
  std::uint64_t packets_ = 0;
  std::uint64_t size_ = 0;
  std::uint64_t first_ns_ = 0;
  std::uint64_t last_ns_ = 0;
  bool unflushed_ = false;
  std::optional<Error> error_;
};

}  // namespace nbx::capture
