#include "inspect/inspect.hpp"

#include <iostream>
#include <memory>

#include "cli/command.hpp"
#include "config/scalar.hpp"

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
      const Result<BitRate> rate = config::Scalar<BitRate>::parse({*link});
      constexpr BitRate slowest{1'000'000};  // of Ethernet
      if (!rate.ok() || rate->bits_per_second < slowest.bits_per_second) {
        std::cerr << "nbx inspect: --link: " << (rate.ok() ? "at least 1Mb/s" : rate.error().message) << '\n';
        return exit_usage;
      }
      options->link = *rate;
    }
    return nbx::inspect(*options, std::cout, std::cerr);
  };
}

}  // namespace nbx::cli
