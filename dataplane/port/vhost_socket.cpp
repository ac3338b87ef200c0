#include "port/vhost_socket.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/unique_fd.hpp"

namespace nbx::port {
namespace {

/// The value of `key` in "driver,key=value,…"; empty when it has none.
std::string_view argument(std::string_view device, std::string_view key) {
  while (!device.empty()) {
    const std::string_view part = device.substr(0, device.find(','));
    device.remove_prefix(std::min(device.size(), part.size() + 1));
    if (part.size() > key.size() && part.starts_with(key) && part[key.size()] == '=') {
      return part.substr(key.size() + 1);
    }
  }
  return {};
}

/// 0 when somebody accepts connections at `path`, or errno.
int try_connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

}  // namespace

std::optional<std::string> vhost_listening_path(std::string_view device) {
  if (!device.starts_with("net_vhost") || argument(device, "client") == "1") {
    return std::nullopt;
  }
  const std::string_view path = argument(device, "iface");
  return path.empty() ? std::nullopt : std::optional<std::string>(path);
}

std::optional<Error> make_way(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Error{path + ": longer than the " + std::to_string(sizeof(sockaddr_un::sun_path) - 1) +
                 " characters that a socket's path may have; choose a shorter one"};
  }
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      return Error{path + ": exists and is not a socket; remove it or name another path"};
    }
    if (try_connect(path) != ECONNREFUSED) {
      return Error{path + ": busy: another process listens there; stop it or name another path"};
    }
    if (unlink(path.c_str()) != 0) {
      return Error{path + ": a socket that nobody serves, and it cannot be removed: " + std::strerror(errno)};
    }
  }
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return Error{path + ": cannot make a socket in " + folder.string() + ": " + std::strerror(errno)};
  }
  return std::nullopt;
}

}  // namespace nbx::port
