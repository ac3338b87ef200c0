// How a connection comes about: listen, the side connection, and the exchange on it until both ends are ready. NCCL
// calls again and again until there is a result, so that nothing here waits.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nccl-glue/net-plugin/connection.hpp"

namespace nbx::nccl::plugin {

/// A TCP connection that is written and read without waiting.
class SideConnection {
 public:
  enum class Progress : std::uint8_t { waiting, done, closed };

  explicit SideConnection(UniqueFd fd) : fd_(std::move(fd)) {}

  void say(ConstBytes bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  /// done: all that was said has gone out.
  [[nodiscard]] Progress flush();
  /// done: heard() is the next `size` bytes.
  [[nodiscard]] Progress hear(std::size_t size);
  [[nodiscard]] ConstBytes heard() const { return heard_; }
  [[nodiscard]] UniqueFd release() { return std::move(fd_); }

 private:
  UniqueFd fd_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
  std::vector<std::byte> heard_;
};

/// One end's part of the exchange.
class Handshake {
 public:
  enum class Progress : std::uint8_t { waiting, done, failed };

  Handshake(SideConnection side, Device& device, const Settings& settings, Complaint complain)
      : side_(std::move(side)), device_(device), settings_(settings), complain_(complain) {}
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;
  Handshake(Handshake&&) = delete;
  Handshake& operator=(Handshake&&) = delete;
  virtual ~Handshake();

  /// Goes as far as the peer allows.
  [[nodiscard]] Progress advance();
  /// The connection, when done.
  [[nodiscard]] std::unique_ptr<Connection> take();

 protected:
  enum class Step : std::uint8_t { hello, device_list, metadata, ready, over };

  /// `bytes` are what this step expected.
  virtual Progress on_heard(Step step, ConstBytes bytes) = 0;
  void expect(Step step, std::size_t size) { step_ = step, size_ = size; }
  /// Nothing more is expected; the exchange is done when all has gone out.
  void end() { step_ = Step::over; }
  [[nodiscard]] Progress fail(const std::string& why);
  /// A peer's metadata that fits `qps` queue pairs, or the reason why not.
  [[nodiscard]] Result<ib::Metadata> read_metadata(ConstBytes bytes, std::size_t qps) const;

  SideConnection side_;
  Device& device_;
  const Settings settings_;
  const Complaint complain_;
  std::unique_ptr<Connection> connection_;

 private:
  Step step_ = Step::over;
  std::size_t size_ = 0;
};

/// The sending end: it connects.
class SendHandshake final : public Handshake {
 public:
  /// Starts connecting to the address in `handle`.
  [[nodiscard]] static std::unique_ptr<SendHandshake> start(const ib::ListenHandle& handle, Device& device,
                                                            const Settings& settings, Complaint complain);
  using Handshake::Handshake;

 private:
  Progress on_heard(Step step, ConstBytes bytes) override;
  void introduce(std::size_t peer_devices);

  std::size_t qps_ = 0;
  std::uint8_t traffic_class_ = 0;
};

/// The receiving end: it was connected to.
class ReceiveHandshake final : public Handshake {
 public:
  ReceiveHandshake(SideConnection side, Device& device, const Settings& settings, Complaint complain);

 private:
  Progress on_heard(Step step, ConstBytes bytes) override;
  Progress answer(const ib::Metadata& peer);
};

/// Where a sender connects to.
class Listener {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Listener>> open(Device& device, const Settings& settings,
                                                              Complaint complain);
  [[nodiscard]] const ib::ListenHandle& handle() const { return handle_; }
  /// Goes on with the connection at hand; the connection is taken from the handshake.
  [[nodiscard]] Handshake::Progress advance();
  [[nodiscard]] std::unique_ptr<Connection> take();

 private:
  Listener(Device& device, const Settings& settings, Complaint complain)
      : device_(device), settings_(settings), complain_(complain) {}

  Device& device_;
  const Settings settings_;
  const Complaint complain_;
  UniqueFd socket_;
  ib::ListenHandle handle_;
  std::unique_ptr<ReceiveHandshake> handshake_;
};

}  // namespace nbx::nccl::plugin
