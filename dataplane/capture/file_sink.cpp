#include "capture/file_sink.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

namespace nbx::capture {
namespace {

constexpr std::size_t drain_max = 4096;  // records per call, so that the caller sees its stop flag

}  // namespace

Result<std::unique_ptr<FileSink>> FileSink::open(FileSinkOptions options) {
  for (const FileSinkOptions::Source& source : options.sources) {
    NBX_CHECK(source.interface < options.interfaces.size());
    if (source.tap->running()) {
      return Error{"interface " + options.interfaces[source.interface].name + " is being captured already"};
    }
  }
  std::unique_ptr<FileSink> sink(new FileSink(std::move(options)));
  sink->open_file();
  if (sink->error_) {
    return *sink->error_;
  }
  for (std::uint32_t i = 0; i < sink->lost_before_.size(); ++i) {
    sink->lost_before_[i] = sink->lost(i);
  }
  for (const FileSinkOptions::Source& source : sink->options_.sources) {
    NBX_CHECK(source.tap->start(sink->options_.snaplen, source.filter));
  }
  return sink;
}

bool FileSink::drain() {
  std::size_t written = 0;
  while (written < drain_max && file_) {
    const FileSinkOptions::Source* oldest = nullptr;
    MutableBytes record;
    for (const FileSinkOptions::Source& source : options_.sources) {
      const MutableBytes candidate = source.tap->ring().front();
      if (!candidate.empty() && (oldest == nullptr || epb_time(candidate) < epb_time(record))) {
        oldest = &source;
        record = candidate;
      }
    }
    if (oldest == nullptr) {
      break;
    }
    write_record(record, oldest->interface);
    oldest->tap->ring().pop(record);
    ++written;
  }
  if (written == 0 && file_) {
    file_->flush();
  }
  return written != 0;
}

void FileSink::close() {
  for (const FileSinkOptions::Source& source : options_.sources) {
    source.tap->stop();
  }
  while (drain()) {
  }
  if (file_) {
    finish_file();
  }
  options_.sources.clear();
}

void FileSink::write_record(MutableBytes record, std::uint32_t interface) {
  if (options_.file_size_max != 0 && file_->size() + record.size() > options_.file_size_max && file_->packets() != 0) {
    rotate();
  }
  if (file_) {
    file_->write(record, interface);
    check();
  }
}

void FileSink::rotate() {
  finish_file();
  if (error_) {
    return;
  }
  ++file_index_;
  open_file();
  if (options_.files_max != 0 && file_index_ >= options_.files_max) {
    std::error_code ignored;  // someone else may have taken it away
    std::filesystem::remove(file_name(file_index_ - options_.files_max), ignored);
  }
}

void FileSink::open_file() {
  file_.emplace(file_name(file_index_), CaptureFileOptions{.snaplen = options_.snaplen,
                                                           .application = options_.application,
                                                           .comment = {},
                                                           .interfaces = options_.interfaces});
  check();
}

void FileSink::finish_file() {
  std::vector<std::uint64_t> lost_here;
  for (std::uint32_t i = 0; i < lost_before_.size(); ++i) {
    lost_here.push_back(lost(i) - lost_before_[i]);
    lost_before_[i] += lost_here.back();
  }
  file_->finish(lost_here);
  check();
  file_.reset();
}

std::string FileSink::file_name(std::size_t index) const {
  if (index == 0) {
    return options_.path;
  }
  std::filesystem::path path(options_.path);
  const std::string extension = path.extension().string();
  path.replace_extension(std::to_string(index) + extension);
  return path.string();
}

/// The capture ends with the file.
void FileSink::check() {
  if (file_->error()) {
    error_ = file_->error();
    file_.reset();
    for (const FileSinkOptions::Source& source : options_.sources) {
      source.tap->stop();
    }
  }
}

std::uint64_t FileSink::lost(std::uint32_t interface) const noexcept {
  std::uint64_t n = 0;
  for (const FileSinkOptions::Source& source : options_.sources) {
    n += source.interface == interface ? source.tap->lost() : 0;
  }
  return n;
}

}  // namespace nbx::capture
