// Prints IRN's comparison at several loads as CSV, for tools/plot-irn.
#include <cstdio>
#include <cstdlib>

#include "theory/irn.hpp"

int main(int argc, char** argv) {
  using namespace nbx::test;
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  std::puts("load,scheme,messages,mean_slowdown,mean_us,p99_us,dropped");
  for (const double load : {0.3, 0.5, 0.7, 0.9}) {
    for (const IrnScheme& scheme : irn_schemes) {
      const IrnOutcome x = run_irn(scheme, load, seed);
      if (!x.complete) {
        std::fprintf(stderr, "%s at load %.1f: not every message arrived\n", scheme.name, load);
        return 1;
      }
      std::printf("%.1f,%s,%lu,%.2f,%.1f,%.1f,%lu\n", load, scheme.name, static_cast<unsigned long>(x.messages),
                  x.slowdown, x.mean_us, x.p99_us, static_cast<unsigned long>(x.dropped));
      std::fflush(stdout);
    }
  }
  return 0;
}
