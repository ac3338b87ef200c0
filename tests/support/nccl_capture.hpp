// What NCCL's bootstrap said in a capture: its connections, each cut into the hello and size-prefixed messages.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "nccl-glue/wire/bootstrap.hpp"
#include "support/tcp_capture.hpp"

namespace nbx::test {

struct BootstrapStream {
  std::size_t connection = 0;
  TcpEnd client;
  TcpEnd server;
  nccl::Hello hello;
  std::vector<Bytes> by_client;
  std::vector<Bytes> by_server;
};

inline std::vector<Bytes> cut_messages(ConstBytes bytes) {
  std::vector<Bytes> messages;
  while (!bytes.empty()) {
    const auto size = nccl::prefix_of(bytes);
    if (!size || *size < 0 || bytes.size() < nccl::prefix_size + static_cast<std::size_t>(*size)) {
      throw std::runtime_error("a message is cut");
    }
    const ConstBytes body = bytes.subspan(nccl::prefix_size, static_cast<std::size_t>(*size));
    messages.emplace_back(body.begin(), body.end());
    bytes = bytes.subspan(nccl::prefix_size + body.size());
  }
  return messages;
}

/// In order of their SYN. The magic is that of the first check-in: connections with another are not bootstrap's.
inline std::vector<BootstrapStream> bootstrap_streams(const TcpCapture& capture, const nccl::Version& version) {
  std::vector<BootstrapStream> streams;
  for (std::size_t i = 0; i < capture.connections.size(); ++i) {
    const TcpConnection& c = capture.connections[i];
    const auto hello = nccl::decode_hello(c.from_client);
    if (!hello || hello->type != nccl::bootstrap_socket) {
      continue;
    }
    if (streams.empty() && c.from_client.size() != nccl::hello_size + nccl::prefix_size + version.check_in_size) {
      continue;
    }
    if (streams.empty() || hello->magic == streams.front().hello.magic) {
      streams.push_back({i, c.client, c.server, *hello,
                         cut_messages(ConstBytes(c.from_client).subspan(nccl::hello_size)),
                         cut_messages(c.from_server)});
    }
  }
  return streams;
}

}  // namespace nbx::test
