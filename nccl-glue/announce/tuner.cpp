// NCCL's tuner interface, versions 2 to 5: pins what NBX_ALGO, NBX_PROTO and NBX_CHANNELS say, and keeps NCCL to what
// ghosts can play (tree and ring). NCCL asks for every collective with a table of estimated times, one row per
// algorithm, one column per protocol; a negative time means "not possible". What it may not choose is made impossible,
// and the choice among the rest stays NCCL's.
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "nccl-glue/announce/names.hpp"
#include "nccl-glue/announce/nccl_api.hpp"
#include "nccl-glue/announce/session.hpp"

namespace nbx::nccl::announce {
namespace {

constexpr float impossible = -1;
constexpr int algorithms_played = 2;

struct Pins {
  std::optional<Algorithm> algorithm;
  std::optional<Protocol> protocol;
  int channels = 0;  // 0: NCCL's choice
};

Pins read_pins() {
  Pins pins;
  const auto variable = [](const char* name) -> std::string_view {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  const std::string_view algorithm = variable("NBX_ALGO");
  const std::string_view protocol = variable("NBX_PROTO");
  const std::string_view channels = variable("NBX_CHANNELS");
  pins.algorithm = algorithm_named(algorithm);
  pins.protocol = protocol_named(protocol);
  std::from_chars(channels.data(), channels.data() + channels.size(), pins.channels);
  if ((!algorithm.empty() && !pins.algorithm) || (!protocol.empty() && !pins.protocol) ||
      (!channels.empty() && pins.channels < 1)) {
    report("NBX_ALGO='" + std::string(algorithm) + "' NBX_PROTO='" + std::string(protocol) + "' NBX_CHANNELS='" +
           std::string(channels) +
           "': wanted are ring or tree, ll, ll128 or simple, and a number; the rest is ignored");
  }
  return pins;
}

const Pins& pins() {
  static const Pins read = read_pins();
  return read;
}

bool allowed(int algorithm, int protocol) {
  return algorithm < algorithms_played && (!pins().algorithm || static_cast<int>(*pins().algorithm) == algorithm) &&
         (!pins().protocol || static_cast<int>(*pins().protocol) == protocol);
}

/// A pin that NCCL cannot follow (a tree broadcast) leaves the table as it is.
ncclResult_t choose(float* table, int algorithms, int protocols, int* channels) {
  bool possible = false;
  for (int a = 0; a < algorithms; a++) {
    for (int p = 0; p < protocols; p++) {
      possible = possible || (allowed(a, p) && table[a * protocols + p] >= 0);
    }
  }
  for (int a = 0; possible && a < algorithms; a++) {
    for (int p = 0; p < protocols; p++) {
      if (!allowed(a, p)) {
        table[a * protocols + p] = impossible;
      }
    }
  }
  if (pins().channels > 0) {
    *channels = pins().channels;
  }
  return ncclSuccess;
}

ncclResult_t init_v5(void** context, std::uint64_t /*comm*/, std::size_t /*ranks*/, std::size_t /*nodes*/,
                     void (* /*logger*/)(), void* /*domains*/, void* /*constants*/) {
  *context = nullptr;
  return ncclSuccess;
}

ncclResult_t init_v2(std::size_t /*ranks*/, std::size_t /*nodes*/, void (* /*logger*/)(), void** context) {
  *context = nullptr;
  return ncclSuccess;
}

ncclResult_t finalize(void* /*context*/) { return ncclSuccess; }

// The table is passed as float** and is one block of floats.
ncclResult_t choose_v4(void* /*context*/, int /*collective*/, std::size_t /*bytes*/, int /*operations*/, float** table,
                       int algorithms, int protocols, int /*registered*/, int* channels) {
  return choose(reinterpret_cast<float*>(table), algorithms, protocols, channels);
}

ncclResult_t choose_v3(void* /*context*/, int /*collective*/, std::size_t /*bytes*/, int /*operations*/, float** table,
                       int algorithms, int protocols, int* channels) {
  return choose(reinterpret_cast<float*>(table), algorithms, protocols, channels);
}

/// Version 2 has no table: only both pins together say something.
ncclResult_t choose_v2(void* /*context*/, int /*collective*/, std::size_t /*bytes*/, int /*collnet*/, int /*nvls*/,
                       int /*operations*/, int* algorithm, int* protocol, int* channels) {
  if (pins().algorithm && pins().protocol) {
    *algorithm = static_cast<int>(*pins().algorithm);
    *protocol = static_cast<int>(*pins().protocol);
  }
  if (pins().channels > 0) {
    *channels = pins().channels;
  }
  return ncclSuccess;
}

template <class Init, class Choose>
struct Tuner {
  const char* name;
  Init* init;
  Choose* choose;
  decltype(&finalize) end;
};

}  // namespace

extern "C" {

extern const Tuner<decltype(init_v5), decltype(choose_v4)> ncclTunerPlugin_v5;
extern const Tuner<decltype(init_v2), decltype(choose_v4)> ncclTunerPlugin_v4;
extern const Tuner<decltype(init_v2), decltype(choose_v3)> ncclTunerPlugin_v3;
extern const Tuner<decltype(init_v2), decltype(choose_v2)> ncclTunerPlugin_v2;

const Tuner<decltype(init_v5), decltype(choose_v4)> ncclTunerPlugin_v5{"neuronabox", init_v5, choose_v4, finalize};
const Tuner<decltype(init_v2), decltype(choose_v4)> ncclTunerPlugin_v4{"neuronabox", init_v2, choose_v4, finalize};
const Tuner<decltype(init_v2), decltype(choose_v3)> ncclTunerPlugin_v3{"neuronabox", init_v2, choose_v3, finalize};
const Tuner<decltype(init_v2), decltype(choose_v2)> ncclTunerPlugin_v2{"neuronabox", init_v2, choose_v2, finalize};

}  // extern "C"

}  // namespace nbx::nccl::announce
