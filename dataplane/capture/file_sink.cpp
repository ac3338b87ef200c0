#include "capture/file_sink.hpp"

#include <sys/utsname.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace nbx::capture {
namespace {

constexpr std::size_t drain_max = 4096;  // records per call, so that the caller sees its stop flag
constexpr std::size_t file_buffer_size = 256U << 10U;
constexpr std::size_t header_block_max = 4096;

std::uint32_t word_at(ConstBytes bytes, std::size_t offset) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Fields of an enhanced packet block (section 4.3).
constexpr std::size_t epb_interface_offset = 8;
constexpr std::size_t epb_time_offset = 12;

std::uint64_t time_of(ConstBytes epb) {
  return (std::uint64_t{word_at(epb, epb_time_offset)} << 32U) | word_at(epb, epb_time_offset + 4);
}

/// Texts go into blocks of bounded size.
std::string_view clipped(std::string_view text) { return text.substr(0, 1024); }

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
  for (std::uint32_t i = 0; i < sink->tally_.size(); ++i) {
    sink->tally_[i].lost_before = sink->lost(i);
  }
  for (const FileSinkOptions::Source& source : sink->options_.sources) {
    NBX_CHECK(source.tap->start(sink->options_.snaplen));
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
      if (!candidate.empty() && (oldest == nullptr || time_of(candidate) < time_of(record))) {
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
  if (written == 0 && unflushed_ && file_) {  // idle: let readers of the growing file see it
    std::fflush(file_.get());
    unflushed_ = false;
  }
  return written != 0;
}

void FileSink::close() {
  for (const FileSinkOptions::Source& source : options_.sources) {
    source.tap->stop();
  }
  if (file_) {
    while (drain()) {
    }
    finish_file();
  }
  options_.sources.clear();
}

void FileSink::write_record(MutableBytes record, std::uint32_t interface) {
  const std::uint64_t end = file_size_ + record.size() + options_.interfaces.size() * isb_size;
  if (options_.file_size_max != 0 && end > options_.file_size_max && file_size_ > header_size_) {
    rotate();
  }
  std::memcpy(record.data() + epb_interface_offset, &interface, sizeof interface);
  last_ns_ = time_of(record);
  if (file_size_ == header_size_) {
    first_ns_ = last_ns_;
  }
  ++tally_[interface].written;
  write(record);
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
  file_name_ = file_name(file_index_);
  file_.reset(std::fopen(file_name_.c_str(), "wb"));
  if (!file_) {
    fail("cannot create");
    return;
  }
  std::setvbuf(file_.get(), nullptr, _IOFBF, file_buffer_size);
  file_size_ = 0;
  std::array<std::byte, header_block_max> block;
  utsname host{};
  uname(&host);
  const std::string os = std::string(host.sysname) + " " + host.release;
  const Section section{.hardware = host.machine, .os = os, .application = clipped(options_.application)};
  write({block.data(), format_shb(block, section)});
  for (std::uint32_t i = 0; i < options_.interfaces.size(); ++i) {
    const FileSinkOptions::Interface& interface = options_.interfaces[i];
    const InterfaceDescription description{.name = clipped(interface.name),
                                           .description = clipped(interface.description),
                                           .snaplen = options_.snaplen,
                                           .speed = interface.speed};
    write({block.data(), format_idb(block, description)});
  }
  header_size_ = file_size_;
}

void FileSink::finish_file() {
  std::array<std::byte, isb_size> block;
  for (std::uint32_t i = 0; i < options_.interfaces.size(); ++i) {
    const std::uint64_t lost_here = lost(i) - tally_[i].lost_before;
    const InterfaceStatistics statistics{.interface_id = i,
                                         .start_ns = first_ns_,
                                         .end_ns = last_ns_,
                                         .received = tally_[i].written + lost_here,
                                         .lost = lost_here};
    write({block.data(), format_isb(block, statistics)});
    tally_[i] = {.lost_before = tally_[i].lost_before + lost_here};
  }
  if (file_ && std::fclose(file_.release()) != 0) {
    fail("cannot write");
  }
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

void FileSink::write(ConstBytes bytes) {
  if (file_ && std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    fail("cannot write");
  }
  file_size_ += bytes.size();
  unflushed_ = true;
}

void FileSink::fail(const std::string& what) {
  if (!error_) {
    error_ = Error{what + " " + file_name_ + ": " + std::strerror(errno)};
  }
  file_.reset();
  for (const FileSinkOptions::Source& source : options_.sources) {
    source.tap->stop();
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
