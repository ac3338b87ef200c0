// A ghost's context whose streams are the test's and whose packets go nowhere.
#pragma once

#include <utility>

#include "frame/pool.hpp"
#include "ghost/personality.hpp"

namespace nbx::test {

struct GhostContext {
  GhostContext(ghost::Streams& streams, const ghost::Directory& directory_of_all)
      : directory(directory_of_all), ports(streams) {}

  const ghost::Directory& directory;
  SlabSource slab{64, 4352};
  FramePool pool{slab};
  Wheel wheel{};
  Counters counters{};
  Ledger ledger{};
  FrameList out{};
  rdma::Transport transport{{}, pool, wheel, counters, out};
  rdma::Cm cm{{}, transport, wheel, counters, Rng(1)};
  ghost::Neighbours neighbours{directory, pool, wheel, counters, out};
  ghost::StreamPorts ports;
  ghost::Context context{.ghost = GhostId{0},
                         .directory = directory,
                         .transport = transport,
                         .cm = cm,
                         .neighbours = neighbours,
                         .streams = ports,
                         .wheel = wheel,
                         .counters = counters,
                         .ledger = ledger,
                         .defaults = {},
                         .rng = Rng(2)};
};

}  // namespace nbx::test
