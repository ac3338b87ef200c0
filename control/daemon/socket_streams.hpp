// The TCP streams of one port's ghosts as kernel sockets in the port's network namespace. Everything is owned by the
// port's worker: the watcher only posts to its mailbox which socket has changed, so there is no lock and no queue
// between the two. One listening socket serves a TCP port for every ghost that listens there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

#include "base/unique_fd.hpp"
#include "daemon/broker.hpp"
#include "daemon/watcher.hpp"
#include "ghost/ghost.hpp"
#include "ghost/streams.hpp"
#include "port/mailbox.hpp"

namespace nbx::daemon {

class SocketStreams final : public ghost::Streams {
 public:
  /// `network` is the port's network at the broker. Everything outlives this object.
  SocketStreams(ghost::Directory directory, Broker& broker, std::size_t network, Watcher& watcher,
                port::Mailbox& mailbox)
      : directory_(std::move(directory)), broker_(broker), network_(network), watcher_(watcher), mailbox_(mailbox) {}

  void listen(GhostId ghost, std::uint16_t port, ghost::StreamUser& user) override;
  ghost::StreamId connect(GhostId ghost, const IpAddress& peer, std::uint16_t port, ghost::StreamUser& user) override;
  void send(ghost::StreamId id, ConstBytes bytes) override;
  void close(ghost::StreamId id) override;

 private:
  struct Listener {
    UniqueFd socket;
    std::map<GhostId, ghost::StreamUser*> users;
  };
  struct Stream {
    UniqueFd socket{};  // none while the broker is being asked
    GhostId ghost = no_ghost;
    IpAddress peer;
    std::uint16_t port = 0;
    ghost::StreamUser* user = nullptr;
    bool open = false;
    bool closing = false;  // by the user; goes when `unsent` is empty
    std::string unsent{};
  };

  void ask_for_socket(std::function<void(UniqueFd, Instant)> then);
  void post(port::Mailbox::Task task);        // the watcher's: waits while the mailbox is full
  void post_later(port::Mailbox::Task task);  // the worker's

  void open_listener(std::uint16_t port, UniqueFd socket);
  void accept(std::uint16_t port, Instant now);
  void adopt(UniqueFd socket, std::uint16_t port, Instant now);
  void begin_connect(ghost::StreamId id, UniqueFd socket, Instant now);
  ghost::StreamId add(Stream stream);
  void watch(ghost::StreamId id, int fd);

  void on_events(ghost::StreamId id, std::uint32_t events, Instant now);
  void finish_connect(ghost::StreamId id, Instant now);
  void read(ghost::StreamId id, Instant now);
  void flush(ghost::StreamId id, Instant now);
  /// False when the stream is broken.
  static bool write_unsent(Stream& stream);
  void end(ghost::StreamId id, Instant now);
  void forget(ghost::StreamId id);
  [[nodiscard]] Stream* find(ghost::StreamId id);

  ghost::Directory directory_;
  Broker& broker_;
  std::size_t network_;
  Watcher& watcher_;
  port::Mailbox& mailbox_;
  std::map<std::uint16_t, Listener> listeners_;
  std::unordered_map<ghost::StreamId, Stream> streams_;
  std::uint32_t last_id_ = 0;
};

}  // namespace nbx::daemon
