// Any bytes as each of the files that are imported: they are refused at a place, or a profile or job that loads comes
// of them.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "config/job.hpp"
#include "config/load.hpp"
#include "import/import.hpp"

namespace {

using nbx::import::Imported;

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void check_places(const Imported& imported) {
  require(imported.ok() != imported.yaml.empty());
  for (const nbx::config::Diagnostic& diagnostic : imported.diagnostics) {
    require(diagnostic.pos.line != 0 && diagnostic.pos.column != 0 && !diagnostic.message.empty());
  }
}

void check_profile(const Imported& imported) {
  check_places(imported);
  require(!imported.ok() || nbx::config::change_profile({}, "imported.yaml", imported.yaml).ok());
}

void check_job(const Imported& imported) {
  check_places(imported);
  require(!imported.ok() || nbx::config::parse_job("imported.yaml", imported.yaml, 0).ok());
}

void check_cluster(const Imported& imported) {
  check_places(imported);
  require(!imported.ok() || nbx::config::parse_cluster("imported.yaml",
                                                       "cluster: c\nports: [{name: p0}]\nghosts: [{name: g, addresses: "
                                                       "[10.0.0.9/24]}]\n" +
                                                           imported.yaml)
                                .ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_profile(nbx::import::from_netem("fuzz", text, nbx::config::Way::both));
  check_profile(nbx::import::from_mahimahi("fuzz", text, nbx::config::Way::from_node));
  check_job(nbx::import::from_simai("fuzz", text));
  check_job(nbx::import::from_chakra("fuzz", text));
  check_job(nbx::import::from_simccl("fuzz", text));
  check_job(nbx::import::from_otg("fuzz", text));
  check_cluster(nbx::import::from_hpcc("fuzz", text, nbx::BitRate::gbps(100)));
  return 0;
}
