// From the rings of taps to pcapng files, on a thread that may block. Several taps may share a file, and several taps
// an interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "capture/capture_file.hpp"
#include "capture/tap.hpp"

namespace nbx::capture {

struct FileSinkOptions {
  using Interface = CaptureFileOptions::Interface;
  struct Source {
    Tap* tap = nullptr;
    std::uint32_t interface = 0;  // index into interfaces
    Filter* filter = nullptr;     // outlives the worker's next turn after close(); null: every frame
  };

  std::string path;  // rotated files go to PATH with .1, .2, … in front of the extension
  std::uint32_t snaplen = snaplen_default;
  std::uint64_t file_size_max = 0;  // 0: one file without limit
  std::size_t files_max = 0;        // the oldest file is removed beyond that; 0: all are kept
  std::string application = "NeuronaBox";
  std::vector<Interface> interfaces;
  std::vector<Source> sources;
};

class FileSink {
 public:
  /// Opens the first file and starts the taps; either both or neither.
  static Result<std::unique_ptr<FileSink>> open(FileSinkOptions options);
  ~FileSink() { close(); }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;
  FileSink(FileSink&&) = delete;
  FileSink& operator=(FileSink&&) = delete;

  /// Writes what the taps have recorded, in order of time, a bounded amount per call. False when there was nothing.
  bool drain();
  /// Stops the taps, writes the rest and the statistics. Further calls do nothing.
  void close();

  /// Why writing failed: the capture has ended then, and what was still in the rings is gone.
  [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }

 private:
  explicit FileSink(FileSinkOptions options) : options_(std::move(options)), lost_before_(options_.interfaces.size()) {}

  [[nodiscard]] std::string file_name(std::size_t index) const;
  void open_file();
  void finish_file();
  void rotate();
  void write_record(MutableBytes record, std::uint32_t interface);
  void check();
  [[nodiscard]] std::uint64_t lost(std::uint32_t interface) const noexcept;

  FileSinkOptions options_;
  std::vector<std::uint64_t> lost_before_;  // by the taps of an interface, before this file
  std::optional<CaptureFile> file_;         // none when it has failed, and after close()
  std::size_t file_index_ = 0;
  std::optional<Error> error_;
};

}  // namespace nbx::capture
