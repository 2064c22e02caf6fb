// GlooContext: one rank's connections to all ranks of a group, over TCP. A GlooProcessGroup runs on
// one; several groups may use it one after the other, which saves connecting anew.
//
// Connecting is collective: all ranks call connect() with the same size and a store that they
// share. The keys it sets stay, so each connection needs a prefix of its own (PrefixStore) or a
// fresh store.
//
// The next group on the same context goes on with the counter of operations, so all ranks must have
// run the same operations before. After a failure, ranks may stand in different operations: then
// throw the context away, on all ranks. GlooOptions::epoch, compared before each operation,
// tells groups apart that share a context.
//
// Threads: any, but a context is used by one group at a time.
// Failure: connect() returns within its timeout, in the worst case (a peer that stops answering
// between its address and its connection) within twice the timeout. Ranks that did not appear are
// named: kTimeout. kInvalidArgument for an address that is not of this machine, or a store that was
// connected through before. Gloo writes to closed connections: the threads that do so block SIGPIPE
// (sigpipe.h), and what the process does about the signal stays as it is.
#pragma once

#include <memory>
#include <string>

#include "reducer/base/status.h"
#include "reducer/comm/store.h"
#include "reducer/platform/platform.h"

namespace gloo::transport {
class Device;
}

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Mesh;

struct GlooContextOptions {
  platform::Duration timeout = std::chrono::seconds(30);  // of connecting
  std::string address = "127.0.0.1";  // of this rank; others must be able to reach it
  // Gloo's device to use; null means shared_device(address) of device.h. For tests that wrap one.
  std::shared_ptr<::gloo::transport::Device> device;
};

class GlooContext {
 public:
  static Result<std::shared_ptr<GlooContext>> connect(const std::shared_ptr<Store>& store, int rank,
                                                      int size, const GlooContextOptions& options);
  explicit GlooContext(std::unique_ptr<Mesh> mesh);
  ~GlooContext();  // tells the peers that this rank leaves; a few tens of milliseconds at most
  GlooContext(const GlooContext&) = delete;
  GlooContext& operator=(const GlooContext&) = delete;

  int rank() const;
  int size() const;

  // Ok, or why the context cannot be used any more.
  Status health() const;

  Mesh& mesh() { return *mesh_; }  // for GlooProcessGroup

 private:
  std::unique_ptr<Mesh> mesh_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
