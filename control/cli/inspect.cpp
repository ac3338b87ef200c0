#include "inspect/inspect.hpp"

#include <iostream>
#include <memory>

#include "cli/command.hpp"
#include "cli/quantity.hpp"

namespace nbx::cli {

Body inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  app.add_option("FILE", options->file, "pcap or pcapng capture")->required();
  app.add_flag("--json", options->json, "print one JSON document");
  app.add_option("--qps", options->qps, "flows to show, those with most bytes first; 0: all");
  auto link = std::make_shared<std::string>();
  app.add_option("--link", *link, "rate of the cable, such as 100Gb/s: how long PFC and PAUSE frames paused");
  app.footer("Example: nbx inspect --qps 10 run.pcapng");
  return [options, link] {
    if (!link->empty()) {
      const auto rate = quantity<BitRate>("inspect", "--link", *link);
      constexpr BitRate slowest = BitRate::mbps(1);  // of Ethernet
      if (!rate) {
        return exit_usage;
      }
      if (*rate < slowest) {
        std::cerr << "nbx inspect: --link: at least 1Mb/s\n";
        return exit_usage;
      }
      options->link = *rate;
    }
    return nbx::inspect(*options, std::cout, std::cerr);
  };
}

}  // namespace nbx::cli
