// Commands that talk to a running nbxd.
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/quantity.hpp"
#include "client/client.hpp"

namespace nbx::cli {
namespace {

std::shared_ptr<client::Options> add_options(CLI::App& app) {
  auto options = std::make_shared<client::Options>();
  app.add_option("--control,--socket", options->socket, "control socket of nbxd")->capture_default_str();
  app.add_flag("--json", options->json, "print one JSON document");
  return options;
}

Body show(CLI::App& app, const char* question) {
  auto options = add_options(app);
  app.add_flag("--watch", options->watch, "again every second");
  return [options, question] { return client::show(question, *options, std::cout, std::cerr); };
}

/// start PORT KEY=VALUE... and stop PORT NAME, of a part of the emulated network; nullopt: neither was said.
std::function<std::optional<int>()> start_and_stop(CLI::App& app, const char* part, const char* name,
                                                   const char* example) {
  struct Order {
    std::string port;
    std::string name;
    std::vector<std::string> values;
    std::shared_ptr<client::Options> options;
  };
  const auto order = std::make_shared<Order>();
  CLI::App* start = app.add_subcommand("start", "what its keys in the cluster file describe");
  start->add_option("PORT", order->port, "port with the network")->required();
  start->add_option("KEY=VALUE", order->values, "keys as in the cluster file")->required();
  CLI::App* stop = app.add_subcommand("stop", "end it");
  stop->add_option("PORT", order->port, "port with the network")->required();
  if (name != nullptr) {
    stop->add_option("NAME", order->name, name)->required();
  }
  order->options = std::make_shared<client::Options>();
  for (CLI::App* each : {start, stop}) {
    each->add_option("--control,--socket", order->options->socket, "control socket of nbxd")->capture_default_str();
    each->add_flag("--json", order->options->json, "print one JSON document");
  }
  app.footer(std::string("Example: ") + example);
  return [=]() -> std::optional<int> {
    if (start->parsed()) {
      return client::start_part(order->port, part, order->values, *order->options, std::cout, std::cerr);
    }
    if (stop->parsed()) {
      return client::stop_part(order->port, part, order->name, *order->options, std::cout, std::cerr);
    }
    return std::nullopt;
  };
}

}  // namespace

Body status(CLI::App& app) { return show(app, "status"); }
Body ports(CLI::App& app) { return show(app, "ports"); }
Body qps(CLI::App& app) { return show(app, "qps"); }
Body ghosts(CLI::App& app) { return show(app, "ghosts"); }
Body nccl(CLI::App& app) { return show(app, "nccl"); }
Body events(CLI::App& app) { return show(app, "events"); }
Body report(CLI::App& app) { return show(app, "report"); }

Body counters(CLI::App& app) {
  auto options = add_options(app);
  auto port = std::make_shared<std::string>();
  app.add_option("PORT", *port, "of this port alone");
  app.add_flag("--watch", options->watch, "again every second");
  return [options, port] { return client::counters(*port, *options, std::cout, std::cerr); };
}

Body capture(CLI::App& app) {
  app.require_subcommand(1);
  CLI::App* start = app.add_subcommand("start", "write frames to a pcapng file");
  auto options = add_options(*start);
  auto order = std::make_shared<client::CaptureStart>();
  start->add_option("FILE", order->file, "pcapng file")->required();
  start->add_option("--filter", order->filter, "which frames, in tcpdump's syntax");
  start->add_option("--snaplen", order->snaplen, "bytes of each frame; 0: all")->capture_default_str();
  start->add_flag("--per-port", order->per_port, "one file per port: FILE with the port's name");
  CLI::App* stop = app.add_subcommand("stop", "end the capture");
  auto stop_options = add_options(*stop);
  CLI::App* trigger = app.add_subcommand("trigger", "have the flight recorder write what it holds");
  auto trigger_options = add_options(*trigger);
  app.footer("Example: nbx capture start run.pcapng --filter 'udp port 4791 and host 10.0.0.1'");
  return [=] {
    return start->parsed()  ? client::start_capture(*order, *options, std::cout, std::cerr)
           : stop->parsed() ? client::stop_capture(*stop_options, std::cout, std::cerr)
                            : client::trigger_capture(*trigger_options, std::cout, std::cerr);
  };
}

Body set(CLI::App& app) {
  auto options = add_options(app);
  auto port = std::make_shared<std::string>();
  auto values = std::make_shared<std::vector<std::string>>();
  app.add_option("PORT", *port, "port whose profile changes")->required();
  app.add_option("KEY=VALUE", *values, "keys of a profile, as in to_node.delay=5ms")->required();
  return [options, port, values] { return client::set(*port, *values, *options, std::cout, std::cerr); };
}

Body profile(CLI::App& app) {
  app.require_subcommand(1);
  CLI::App* load = app.add_subcommand("load", "replace the profile of a port");
  auto options = add_options(*load);
  auto port = std::make_shared<std::string>();
  auto file = std::make_shared<std::string>();
  load->add_option("PORT", *port, "port whose profile changes")->required();
  load->add_option("FILE", *file, "profile file, or the name of a shipped profile")->required();
  return [options, port, file] { return client::load_profile(*port, *file, *options, std::cout, std::cerr); };
}

Body link(CLI::App& app) {
  app.require_subcommand(1);
  CLI::App* down = app.add_subcommand("down", "lose frames to and from the real node");
  auto options = add_options(app);
  auto port = std::make_shared<std::string>();
  auto change = std::make_shared<client::LinkChange>();
  down->add_option("PORT", *port, "port whose link goes down")->required();
  down->add_option("--for", change->time, "up again after this time, as in 300ms");
  down->add_option("--direction", change->direction,
                   "from_node or to_node alone: a half-open link, as a cable 'a->b' is");
  CLI::App* up = app.add_subcommand("up", "end it");
  up->add_option("PORT", *port, "port whose link comes up")->required();
  for (CLI::App* each : {down, up}) {
    each->add_option("--cable", change->cable,
                     "a cable of the emulated network instead, as leaf0-spine1, or half-open as 'leaf0->spine1'");
    each->fallthrough();
  }
  app.footer(
      "Examples: nbx link down p0 --for 300ms --direction to_node\n"
      "          nbx link down p0 --cable 'leaf0->spine1'");
  return [=] {
    change->down = down->parsed();
    return client::change_link(*port, *change, *options, std::cout, std::cerr);
  };
}

Body storm(CLI::App& app) {
  app.require_subcommand(1);
  const auto change = start_and_stop(app, "storm", nullptr, "nbx storm start p0 priorities=3 duration=5ms");
  return [change] { return *change(); };
}

Body slow_receiver(CLI::App& app) {
  app.require_subcommand(1);
  const auto change = start_and_stop(app, "slow_receiver", "ghost that is slow; `*` at the end stands for any rest",
                                     "nbx slow-receiver start p0 ghosts=g1 drain=1Gb/s lasts=10s");
  return [change] { return *change(); };
}

Body traffic(CLI::App& app) {
  const auto asked = show(app, "traffic");
  const auto change =
      start_and_stop(app, "traffic", "of the traffic",
                     "nbx traffic start p0 name=burst pattern=incast to=node load=30% sizes.cdf=web_search lasts=10s");
  return [=] {
    const std::optional<int> changed = change();
    return changed ? *changed : asked();
  };
}

Body trace(CLI::App& app) {
  auto options = add_options(app);
  auto order = std::make_shared<client::TraceOrder>();
  auto time = std::make_shared<std::string>();
  auto file = std::make_shared<std::string>();
  app.add_option("PORT", order->port, "of this port alone");
  app.add_option("--ghost", order->ghost, "of this ghost alone, or of those that share this name");
  app.add_option("--qpn", order->qpn, "of the ghosts' queue pairs with this number alone");
  app.add_option("--for", *time, "how long, as in 2s; else until interrupted");
  app.add_flag("--rates", order->rates_only, "without the steps that moved alpha alone");
  app.add_option("--steps", order->steps_max, "room for so many in a tenth of a second")->capture_default_str();
  app.add_option("--out", *file, "file to write; else standard output");
  app.footer("Example: nbx trace p0 --ghost sender --for 2s --rates --out rates.csv; tools/plot-rates draws it");
  return [=] {
    if (!time->empty()) {
      const auto parsed = quantity<Duration>("trace", "--for", *time);
      if (!parsed) {
        return exit_usage;
      }
      order->time = std::chrono::duration_cast<std::chrono::nanoseconds>(*parsed);
    }
    if (file->empty()) {
      return client::trace(*order, *options, std::cout, std::cerr);
    }
    std::ofstream out(*file);
    if (!out) {
      std::cerr << "nbx: error: " << *file << ": cannot be written\n";
      return exit_failed;
    }
    return client::trace(*order, *options, out, std::cerr);
  };
}

}  // namespace nbx::cli
