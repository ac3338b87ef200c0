#include "layout.hpp"

#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>
#include <stdexcept>

#include "../driver/internal.hpp"

namespace phantom::nccl {
namespace {

template <class T>
T field(const char* base, int offset) {
  T t;
  memcpy(&t, base + offset, sizeof t);
  return t;
}

std::string description_path(const std::string& library) {
  if (const char* e = getenv("PHANTOM_NCCL_DESCRIPTION")) {
    return e;
  }
  char real[PATH_MAX];
  const std::string full = realpath(library.c_str(), real) ? real : library;
  const size_t slash = full.rfind('/');
  return (slash == std::string::npos ? "." : full.substr(0, slash)) + "/libnccl.phantom";
}

void read_line(const std::string& line, Description& d) {
  std::istringstream in(line);
  std::string key;
  in >> key;
  if (key == "version") {
    in >> d.version;
  }
  if (key == "layout") {
    std::string name;
    int value;
    if (!(in >> name >> value)) {
      throw std::runtime_error("bad line: " + line);
    }
#define X(f) \
  if (name == #f) d.layout.f = value;
    PHANTOM_LAYOUT(X) PHANTOM_LAYOUT_OPTIONAL(X)
#undef X
  }
  if (key == "function") {
    int id;
    std::string text;
    in >> id;
    std::getline(in, text);
    Function f;
    // The first line of a number wins: signed and unsigned integers share functions.
    if (parse_function(text, &f)) {
      d.functions.emplace(id, f);
    }
  }
}

std::unique_ptr<Description> load(const std::string& library) {
  auto d = std::make_unique<Description>();
  d->path = description_path(library);
  std::ifstream in(d->path);
  if (!in) {
    throw std::runtime_error(library + " has no description at " + d->path +
                             " (nccl-from-debian writes one; PHANTOM_NCCL_DESCRIPTION may name another)");
  }
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') {
      read_line(line, *d);
    }
  }
#define X(f) \
  if (d->layout.f < 0) throw std::runtime_error(d->path + ": no layout of " #f);
  PHANTOM_LAYOUT(X)
#undef X
  if (d->functions.empty()) {
    throw std::runtime_error(d->path + ": no functions");
  }
  PLOG(2, "%s: NCCL %s, %zu functions", d->path.c_str(), d->version.c_str(), d->functions.size());
  return d;
}

}  // namespace

const Description& describe(const std::string& library) {
  static std::mutex mu;
  static auto& known = *new std::map<std::string, std::unique_ptr<Description>>;
  std::lock_guard lock(mu);
  auto& d = known[library];
  if (!d) {
    d = load(library);
  }
  return *d;
}

KernelComm::KernelComm(const Layout& l, const char* raw)
    : rank(field<int>(raw, l.comm_rank)),
      n_ranks(field<int>(raw, l.comm_ranks)),
      abort_flag(field<volatile uint32_t*>(raw, l.comm_abort_flag)) {
  memcpy(buff_sizes, raw + l.comm_buff_sizes, sizeof buff_sizes);
  if (l.comm_work_started >= 0) {
    work_started = field<ProfilerSlots*>(raw, l.comm_work_started);
  }
  if (l.comm_work_completed >= 0) {
    work_completed = field<ProfilerSlots*>(raw, l.comm_work_completed);
  }
}

Channel::Channel(const Layout& l, char* raw_comm, int id) {
  char* raw = raw_comm + l.channels + id * l.channel_size;
  peers = field<ChannelPeer**>(raw, l.channel_peers);
  ring = {field<int>(raw, l.ring_prev), field<int>(raw, l.ring_next), field<int*>(raw, l.ring_user_ranks),
          field<int>(raw, l.ring_index)};
  tree.up = field<int>(raw, l.tree_up);
  memcpy(tree.down, raw + l.tree_down, sizeof tree.down);
  if (l.channel_work_counter >= 0) {
    work_counter = reinterpret_cast<uint64_t*>(raw + l.channel_work_counter);
  }
}

}  // namespace phantom::nccl
