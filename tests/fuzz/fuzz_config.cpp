// Any text as a cluster file: it is refused with diagnostics that have a place, or plans of shards come of it.
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "config/load.hpp"
#include "plan/plan.hpp"

namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const nbx::config::Loaded loaded =
      nbx::config::parse_cluster("fuzz/cluster.yaml", {reinterpret_cast<const char*>(data), size});
  std::ostringstream printed;
  for (const nbx::config::Diagnostic& diagnostic : loaded.diagnostics) {
    require(diagnostic.pos.line != 0 && diagnostic.pos.column != 0 && !diagnostic.message.empty());
    printed << diagnostic;
  }
  if (loaded.ok()) {
    require(nbx::plan::make_plans(loaded.config).size() == loaded.config.ports.size());
  }
  return 0;
}
