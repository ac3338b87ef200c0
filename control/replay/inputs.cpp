#include "replay/inputs.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace nbx::replay {

namespace {

constexpr std::uint16_t link_type_ethernet = 1;

Error in_file(const std::string& path, const capture::ReadError& error) {
  return Error{path + ": byte " + std::to_string(error.offset) + ": " + error.reason};
}

}  // namespace

Result<std::unique_ptr<Inputs>> Inputs::open(const std::vector<InputFile>& files, std::vector<std::string> ports) {
  std::unique_ptr<Inputs> inputs(new Inputs(std::move(ports)));
  for (const InputFile& file : files) {
    Source& source = *inputs->sources_.emplace_back(std::make_unique<Source>());
    source.file = file;
    source.stream.open(file.path, std::ios::binary);
    if (!source.stream) {
      return Error{file.path + ": " + std::strerror(errno)};
    }
    auto reader = capture::Reader::open(source.stream);
    if (!reader) {
      return in_file(file.path, reader.error());
    }
    source.reader = std::move(*reader);
    if (auto error = advance(source)) {
      return *error;
    }
  }
  bool first = true;
  for (const auto& source : inputs->sources_) {
    if (source->waits) {
      inputs->first_ns_ =
          first ? source->record.timestamp_ns : std::min(inputs->first_ns_, source->record.timestamp_ns);
      first = false;
    }
  }
  return inputs;
}

Result<std::optional<Inputs::Arrival>> Inputs::next() {
  if (Source* last = std::exchange(handed_out_, nullptr)) {
    if (auto error = advance(*last)) {
      return *error;
    }
  }
  Source* earliest = nullptr;
  for (const auto& source : sources_) {
    if (source->waits && (earliest == nullptr || source->record.timestamp_ns < earliest->record.timestamp_ns)) {
      earliest = source.get();
    }
  }
  if (earliest == nullptr) {
    return std::optional<Arrival>{};
  }
  const auto port = port_of(*earliest);
  if (!port) {
    return port.error();
  }
  handed_out_ = earliest;
  return std::optional(Arrival{*port, &earliest->record, earliest->file.port.empty() && ports_.size() > 1});
}

std::optional<Error> Inputs::advance(Source& source) {
  const auto more = source.reader->next(source.record);
  if (!more) {
    return in_file(source.file.path, more.error());
  }
  source.waits = *more;
  return std::nullopt;
}

Result<std::size_t> Inputs::port_of(const Source& source) const {
  const capture::Reader::Interface& interface = source.reader->interfaces()[source.record.interface];
  if (interface.link_type != link_type_ethernet) {
    return Error{source.file.path + ": link type " + std::to_string(interface.link_type) + " is not Ethernet"};
  }
  if (source.file.port.empty() && ports_.size() == 1) {
    return std::size_t{0};
  }
  const std::string& name = source.file.port.empty() ? interface.name : source.file.port;
  const auto port = std::find(ports_.begin(), ports_.end(), name);
  if (port == ports_.end()) {
    return Error{source.file.path + ": no port is called as its interface '" + name +
                 "'; write PORT=" + source.file.path + " for the frames of one port"};
  }
  return static_cast<std::size_t>(port - ports_.begin());
}

}  // namespace nbx::replay
