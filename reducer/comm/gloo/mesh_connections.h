// MeshConnections are the connections of a rank to all other ranks of its group, and how they are
// made and closed.
//
// Connecting goes through the reducer's Store with the caller's deadline, not through Gloo's
// rendezvous, whose waits last 30 s whatever the caller wants. Each rank announces in the store
// that it is present, waits until all others have done so, and only then publishes addresses and
// connects.
//
// Meanwhile the ranks find out whether all of them can share memory (host_memory.h).
//
// Threads: one thread connects; after that error_of() and close() by any thread, and bytes_moved()
// too.
// Failure: every step returns an error that names the peer, or throws what Gloo throws. After an
// error there is nothing to do but to destroy the object.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <memory>
#include <optional>
#include <string>

#include "reducer/base/status.h"
#include "reducer/comm/gloo/device.h"
#include "reducer/comm/gloo/gloo_context.h"
#include "reducer/comm/gloo/host_memory.h"
#include "reducer/comm/gloo/sockets.h"
#include "reducer/comm/store.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

constexpr int kMaxMeshSize = 4096;  // In ranks.

class MeshConnections {
 public:
  MeshConnections(int rank, int size) : rank_(rank), size_(size), memory_(rank, size) {}

  int rank() const { return rank_; }
  int size() const { return size_; }

  // The steps of connecting, in this order. meet() waits until all ranks are there; connect()
  // connects them. greet() exchanges a message with every peer: messages on a connection stay in
  // order, so a rank that has a peer's hello knows that the receives are posted which the peer has
  // posted before its greet(), and can send to them without waiting.
  Status meet(Store& store, const GlooContextOptions& options, platform::Deadline deadline);
  Status connect(Store& store, platform::Deadline deadline);
  Status greet(platform::Deadline deadline);
  // A failure of connecting that arose on this rank.
  Failure failure(Code code, int suspect, std::string detail) const;

  bool has_loop() const { return loop_.has_value(); }
  bool is_connected() const { return closer_ != nullptr; }
  const std::shared_ptr<::gloo::transport::Context>& transport() const { return transport_; }
  const std::shared_ptr<::gloo::transport::Device>& device() const { return device_; }
  const EventLoop& loop() const { return *loop_; }  // After meet().
  HostMemory& memory() { return memory_; }          // Settled by greet().
  const HostMemory& memory() const { return memory_; }

  // The error that a connection has failed with; empty if it has not.
  std::optional<std::string> error_of(int peer) const;
  // Closes all connections; pending transfers get an exception. What the kernel has not sent yet is
  // still sent.
  void close();
  // Frees the connections. Everything that was made of transport() is gone by then.
  void release();

  // A number that grows when bytes move to or from any peer.
  std::uint64_t bytes_moved() const { return sockets_.bytes_moved(); }

 private:
  Status await_peers(Store& store, platform::Deadline deadline);
  Status publish(Store& store, platform::Deadline deadline);
  Status connect_pairs(Store& store, platform::Deadline deadline);
  void find_sockets();

  const int rank_;
  const int size_;
  std::shared_ptr<::gloo::transport::Device> device_;
  std::optional<EventLoop> loop_;  // The loop of device_.
  std::shared_ptr<::gloo::transport::Context> transport_;
  HostMemory memory_;
  Sockets sockets_;                                           // The sockets of transport_.
  std::unique_ptr<::gloo::transport::UnboundBuffer> closer_;  // A buffer of no bytes.
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
