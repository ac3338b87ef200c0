// Runs a fuzz target over files and folders given as arguments, once each: the corpus as a test, with any compiler.
// Captures among them are taken apart into their packets.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "support/pcap_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::size_t run(const std::filesystem::path& path) {
  if (path.extension() == ".pcap") {
    const auto records = nbx::test::read_pcap(path);
    for (const auto& record : records) {
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(record.bytes.data()), record.bytes.size());
    }
    return records.size();
  }
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t inputs = 0;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      inputs += run(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (entry.is_regular_file()) {
        inputs += run(entry.path());
      }
    }
  }
  std::printf("%zu inputs\n", inputs);
  return inputs == 0 ? 1 : 0;
}
