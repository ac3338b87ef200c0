// One maker per personality, each defined in the personality's own file.
#pragma once

#include <memory>

#include "ghost/personalities/session.hpp"
#include "ghost/personality.hpp"

namespace nbx::ghost {

std::unique_ptr<Personality> make(const PerftestOptions& options, const Context& context);
std::unique_ptr<Personality> make(const PingpongOptions& options, const Context& context);
std::unique_ptr<Personality> make(const RpingOptions& options, const Context& context);
std::unique_ptr<Personality> make(const RcopsOptions& options, const Context& context);
std::unique_ptr<Personality> make(const EchoOptions& options, const Context& context);
std::unique_ptr<Personality> make(const SinkOptions& options, const Context& context);
std::unique_ptr<Personality> make(const SourceOptions& options, const Context& context);

}  // namespace nbx::ghost
