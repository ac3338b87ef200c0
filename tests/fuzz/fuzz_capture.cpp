// Any bytes as a capture file: the reader and everything behind `nbx inspect` neither crash nor read outside, and each
// packet lies within the file.
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "capture/reader.hpp"
#include "inspect/analysis.hpp"
#include "inspect/report.hpp"

namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nbx;
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  auto reader = capture::Reader::open(in);
  if (!reader) {
    require(reader.error().offset <= size);
    return 0;
  }
  analysis::Analysis analysis;
  capture::Record record;
  for (;;) {
    const auto more = reader->next(record);
    require(reader->offset() <= size);
    if (!more || !*more) {
      require(more || more.error().offset < size);
      break;
    }
    require(record.interface < reader->interfaces().size() && record.captured.size() < size);
    analysis.add(record, reader->interfaces()[record.interface]);
  }
  const std::string name = "fuzz";
  const analysis::Report report{name, analysis, reader->interfaces(), 0};
  std::ostringstream out;
  print_text(report, out);
  print_json(report, out);
  return 0;
}
