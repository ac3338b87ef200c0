#include "inspect/inspect.hpp"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "capture/reader.hpp"
#include "inspect/analysis.hpp"
#include "inspect/report.hpp"

namespace nbx {
namespace {

/// A line on a terminal that shows how far a long run is.
class Progress {
 public:
  explicit Progress(const std::string& file) : terminal_(isatty(STDERR_FILENO) == 1) {
    std::error_code unknown;  // a pipe has no size
    size_ = std::filesystem::file_size(file, unknown);
    if (unknown) {
      terminal_ = false;
    }
  }
  ~Progress() {
    if (shown_) {
      std::fputs("\r\033[K", stderr);
    }
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  Progress(Progress&&) = delete;
  Progress& operator=(Progress&&) = delete;

  void at(std::uint64_t offset) {
    constexpr auto patience = std::chrono::seconds(2);
    constexpr auto interval = std::chrono::milliseconds(200);
    constexpr unsigned packets_between_looks = 4096;
    constexpr int width = 40;
    if (!terminal_ || ++packets_ % packets_between_looks != 0) {
      return;
    }
    const auto now = Clock::now();
    if (now - start_ < patience || now - shown_at_ < interval) {
      return;
    }
    shown_at_ = now;
    shown_ = true;
    const double part = size_ == 0 ? 1.0 : static_cast<double>(offset) / static_cast<double>(size_);
    const int filled = static_cast<int>(part * width);
    std::fprintf(stderr, "\r[%-*.*s] %3.0f %%", width, filled, "########################################", part * 100);
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool terminal_;
  bool shown_ = false;
  std::uint64_t size_ = 0;
  unsigned packets_ = 0;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_at_ = start_;
};

std::string describe(const std::string& file, const capture::ReadError& error) {
  return file + ": at byte " + std::to_string(error.offset) + ": " + error.reason + "\n";
}

/// Reads to the end, or to what is wrong.
std::optional<capture::ReadError> read_all(capture::Reader& reader, const std::string& file,
                                           analysis::Analysis& analysis) {
  Progress progress(file);
  capture::Record record;
  for (;;) {
    const auto more = reader.next(record);
    if (!more) {
      return more.error();
    }
    if (!*more) {
      return std::nullopt;
    }
    analysis.add(record, reader.interfaces()[record.interface]);
    progress.at(reader.offset());
  }
}

}  // namespace

int inspect(const InspectOptions& options, std::ostream& out, std::ostream& errors) {
  std::ifstream file(options.file, std::ios::binary);
  if (!file) {
    errors << options.file << ": cannot open: " << std::strerror(errno) << "\n";
    return 2;
  }
  auto reader = capture::Reader::open(file);
  if (!reader) {
    errors << describe(options.file, reader.error());
    return 2;
  }
  analysis::Analysis analysis(options.link);
  const auto damage = read_all(*reader, options.file, analysis);
  const analysis::Report report{options.file, analysis, reader->interfaces(), options.qps};
  if (options.json) {
    print_json(report, out);
  } else {
    print_text(report, out);
  }
  if (damage) {
    errors << describe(options.file, *damage);
    return 1;
  }
  return 0;
}

}  // namespace nbx
