// The socket file of a vhost-user port on which the emulator listens.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace nbx::port {

/// The path at which a net_vhost device string makes the emulator listen; nullopt for any other device.
[[nodiscard]] std::optional<std::string> vhost_listening_path(std::string_view device);

/// Removes a socket file that nobody serves any more. An error when somebody does, when the file is no socket, or
/// when the folder does not allow a new one.
[[nodiscard]] std::optional<Error> make_way(const std::string& path);

}  // namespace nbx::port
