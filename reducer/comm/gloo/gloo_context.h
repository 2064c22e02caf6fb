// GlooContext holds one rank's connections to all ranks of a group, over TCP. A GlooProcessGroup
// runs on a context; several groups may use it one after the other, which saves connecting again.
//
// Connecting is collective: all ranks call connect() with the same size and a store that they
// share. The keys that it sets stay, so each connection needs a prefix of its own (PrefixStore) or
// a fresh store.
//
// The next group on the same context continues the counter of operations, so all ranks must have
// run the same operations before. After a failure, ranks may be in different operations: then
// discard the context on all ranks. GlooOptions::epoch, which ranks compare before each operation,
// distinguishes groups that share a context.
//
// Threads: any, but one group at a time uses a context.
// Failure: connect() returns within its timeout, or within twice the timeout in the worst case (a
// peer that stops answering between its address and its connection). kTimeout names the ranks that
// did not appear. kInvalidArgument means an address that is not of this machine, or a store that
// was used for connecting before. Gloo writes to closed connections: the threads that do so block
// SIGPIPE (sigpipe.h), and the process's disposition of the signal does not change.
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
  platform::Duration timeout = std::chrono::seconds(30);  // The timeout of connecting.
  // The address of this rank, which the other ranks must be able to reach.
  std::string address = "127.0.0.1";
  // If true, and if all ranks run on this host, the payload goes through memory (host_memory.h),
  // and the connections only tell the ranks of failures. All ranks use the memory, or none does.
  bool share_memory = true;
  // The Gloo device to use, for the payload, too; null means shared_device(address) of device.h.
  // Tests pass a wrapped one.
  std::shared_ptr<::gloo::transport::Device> device;
};

class GlooContext {
 public:
  static Result<std::shared_ptr<GlooContext>> connect(const std::shared_ptr<Store>& store, int rank,
                                                      int size, const GlooContextOptions& options);
  explicit GlooContext(std::unique_ptr<Mesh> mesh);
  // Notifies the peers that this rank leaves; it takes a few tens of milliseconds at most.
  ~GlooContext();
  GlooContext(const GlooContext&) = delete;
  GlooContext& operator=(const GlooContext&) = delete;

  int rank() const;
  int size() const;

  // Ok, or why the context cannot be used any more.
  Status health() const;

  // Empty if the ranks share memory, or why they do not.
  const std::string& why_no_shared_memory() const;

  Mesh& mesh() { return *mesh_; }  // For GlooProcessGroup.

 private:
  std::unique_ptr<Mesh> mesh_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
