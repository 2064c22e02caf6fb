// A Gloo device over TCP whose connections authenticate before Gloo reads from them, and whose
// event loop survives what Gloo refuses.
//
// Why: Gloo takes the first connection that comes to a port for that of its peer, and believes what
// it reads there. Where Gloo's own checks then refuse a message, they throw on the thread of the
// event loop, which ends the process. So
//  - each end of a pair makes two secrets, the knock and the answer, and hands them out through the
//    store only, beside its address (invitation_of()). Who connects sends the knock first, and who
//    listens sends the answer back. Until then nothing of a connection reaches Gloo, and a
//    connection with another secret is closed.
//  - an exception of Gloo on the event loop closes its own connection, with the exception's text.
//    All who use the connection get that as an error, as if the connection had broken.
//
// What this does not keep out: a stranger who connects first takes the place of the peer, which
// then cannot connect, so that connecting fails with an error on both ranks. The secrets and all
// data travel unencrypted. Who can read the store, or the network, can pass for a rank.
//
// Threads: as Gloo's devices. Failure: functions throw what Gloo throws.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class GuardedPair : public ::gloo::transport::tcp::Pair {
 public:
  using Secret = std::array<char, 16>;
  struct Secrets {
    Secret knock{};   // sent by the end that connects
    Secret answer{};  // sent by the end that listens
  };

  GuardedPair(::gloo::transport::tcp::Context* context, ::gloo::transport::tcp::Device* device,
              int rank, std::chrono::milliseconds timeout);
  ~GuardedPair() override;

  const Secrets& secrets() const { return own_; }
  // Before connect(): the secrets of the other end.
  void set_secrets_of_peer(const Secrets& secrets);

  void handleEvents(int events) override;

 protected:
  // What Gloo does with a connection that has authenticated. Tests replace it.
  virtual void transfer(int events) { ::gloo::transport::tcp::Pair::handleReadWrite(events); }

  void handleReadWrite(int events) final;
  void changeState(state next) noexcept override;
  void waitUntilConnected(std::unique_lock<std::mutex>& lock, bool use_timeout) override;

 private:
  // The next four are called with Gloo's mutex of the pair.
  void authenticate();
  bool receive_secret();
  void send_secret(const Secret& secret) const noexcept;
  void refuse(const std::string& why);

  const Secrets own_;
  Secrets peers_;
  Secret received_{};
  std::size_t received_bytes_ = 0;
  bool is_authenticated_ = false;
};

class GuardedContext : public ::gloo::transport::tcp::Context {
 public:
  using ::gloo::transport::tcp::Context::Context;
  std::unique_ptr<::gloo::transport::Pair>& createPair(int peer) override;

 protected:
  virtual std::unique_ptr<GuardedPair> make_pair(int peer);
};

class GuardedDevice : public ::gloo::transport::tcp::Device {
 public:
  explicit GuardedDevice(const std::string& address)
      : ::gloo::transport::tcp::Device(::gloo::transport::tcp::CreateDeviceAttr(
            ::gloo::transport::tcp::attr(address.c_str()))) {}
  std::shared_ptr<::gloo::transport::Context> createContext(int rank, int size) override;
};

// The bytes by which the peer connects to this end of a pair. A pair of another device has an
// address alone.
std::vector<char> invitation_of(::gloo::transport::Pair& pair);

// Connects a pair by the invitation of the other end. Returns false, and does nothing, if the bytes
// do not have the length of an invitation.
bool accept_invitation(::gloo::transport::Pair& pair, const std::vector<char>& invitation);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
