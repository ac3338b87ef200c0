#include "capture/capture_file.hpp"

#include <sys/utsname.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace nbx::capture {
namespace {

constexpr std::size_t file_buffer_size = 256U << 10U;
constexpr std::size_t header_block_max = 6144;

/// Texts go into blocks of bounded size.
std::string_view clipped(std::string_view text) { return text.substr(0, 1024); }

}  // namespace

CaptureFile::CaptureFile(std::string path, const CaptureFileOptions& options)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb")), written_(options.interfaces.size()) {
  if (!file_) {
    fail("cannot create");
    return;
  }
  std::setvbuf(file_.get(), nullptr, _IOFBF, file_buffer_size);
  std::array<std::byte, header_block_max> block;
  utsname host{};
  uname(&host);
  const std::string os = std::string(host.sysname) + " " + host.release;
  const Section section{.hardware = host.machine,
                        .os = os,
                        .application = clipped(options.application),
                        .comment = clipped(options.comment)};
  append({block.data(), format_shb(block, section)});
  for (const CaptureFileOptions::Interface& interface : options.interfaces) {
    const InterfaceDescription description{.name = clipped(interface.name),
                                           .description = clipped(interface.description),
                                           .snaplen = options.snaplen,
                                           .speed = interface.speed};
    append({block.data(), format_idb(block, description)});
  }
}

void CaptureFile::write(MutableBytes epb, std::uint32_t interface) {
  set_epb_interface(epb, interface);
  last_ns_ = epb_time(epb);
  if (packets_ == 0) {
    first_ns_ = last_ns_;
  }
  ++packets_;
  ++written_[interface];
  append(epb);
}

void CaptureFile::flush() {
  if (unflushed_ && file_) {
    std::fflush(file_.get());
    unflushed_ = false;
  }
}

void CaptureFile::finish(const std::vector<std::uint64_t>& lost) {
  std::array<std::byte, isb_size> block;
  for (std::uint32_t i = 0; i < written_.size(); ++i) {
    const InterfaceStatistics statistics{.interface_id = i,
                                         .start_ns = first_ns_,
                                         .end_ns = last_ns_,
                                         .received = written_[i] + lost[i],
                                         .lost = lost[i]};
    append({block.data(), format_isb(block, statistics)});
  }
  if (file_ && std::fclose(file_.release()) != 0) {
    fail("cannot write");
  }
}

void CaptureFile::append(ConstBytes bytes) {
  if (file_ && std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    fail("cannot write");
  }
  size_ += bytes.size();
  unflushed_ = true;
}

void CaptureFile::fail(const char* what) {
  if (!error_) {
    error_ = Error{std::string(what) + " " + path_ + ": " + std::strerror(errno)};
  }
  file_.reset();
}

}  // namespace nbx::capture
