// What a queue pair is to the program that uses it, where that is a collective library.
#pragma once

#include <cstdint>

namespace nbx {

/// A connection from one rank of a communicator to another; requests with data go this way.
struct RankEdge {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint8_t channel = 0;  // send/recv: the how-manieth of this pair
  bool send_recv = false;    // a connection of its own for ncclSend and ncclRecv
};

}  // namespace nbx
