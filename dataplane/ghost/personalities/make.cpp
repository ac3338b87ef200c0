#include "ghost/personalities/make.hpp"

namespace nbx::ghost {

namespace {

struct NameOf {
  std::string_view operator()(const PerftestOptions&) const { return "perftest"; }
  std::string_view operator()(const PingpongOptions&) const { return "pingpong"; }
  std::string_view operator()(const RpingOptions&) const { return "rping"; }
  std::string_view operator()(const RcopsOptions&) const { return "rcops"; }
  std::string_view operator()(const EchoOptions&) const { return "echo"; }
  std::string_view operator()(const SinkOptions&) const { return "sink"; }
  std::string_view operator()(const SourceOptions&) const { return "source"; }
};

}  // namespace

std::string_view name(const PersonalityOptions& options) { return std::visit(NameOf{}, options); }

std::unique_ptr<Personality> make_personality(const PersonalityOptions& options, const Context& context) {
  return std::visit([&](const auto& o) { return make(o, context); }, options);
}

}  // namespace nbx::ghost
