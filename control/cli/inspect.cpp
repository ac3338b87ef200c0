#include "inspect/inspect.hpp"

#include <iostream>
#include <memory>

#include "cli/command.hpp"

namespace nbx::cli {

Body inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  app.add_option("FILE", options->file, "pcap or pcapng capture")->required();
  app.add_flag("--json", options->json, "print one JSON document");
  app.add_option("--qps", options->qps, "flows to show, those with most bytes first; 0: all");
  app.footer("Example: nbx inspect --qps 10 run.pcapng");
  return [options] { return nbx::inspect(*options, std::cout, std::cerr); };
}

}  // namespace nbx::cli
