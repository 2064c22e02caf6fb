// GlooProcessGroup is a ProcessGroup over Gloo and TCP. If all ranks run on one host the payload
// goes through memory that they share (comm/shared_collectives.h), unless
// GlooContextOptions::share_memory forbids it; the connections then carry failures alone. Bits,
// deadlines and errors are the same.
//
// start() queues collectives, and the group's workers take them first in, first out. With two
// workers two collectives run at once, each with a tag of its own; shared memory has one worker,
// and runs one after the other. Before any payload moves the ranks compare what they are about to
// run (agreement.h), so a mismatch is a kMismatch failure with both sides in its text. Sums are
// added in the order of gloo::allreduce's ring or bcube, and each addition is rounded to the dtype
// (reduce_functions.h).
//
// Deadlines. What runs must make progress within `timeout`, whatever Gloo's own limits say: each
// operation that begins or ends, each transfer that ends, and bytes that move in the middle of one
// are progress, however long all of it takes. What is queued has no deadline of its own. A watchdog
// ends the group when nothing has come further, up to a tenth of the timeout late where bytes
// alone had moved, and takes a second at the most to find out who holds the group up (roll_call.h).
// Workers leave Gloo's waits at once then (watched_transport.h), and only after they have let go of
// the caller's memory does the Work complete.
//
// Failure. The first cause stays. It has the code kPeerLost, kTimeout, kMismatch, kCorrupted or
// kTransport, the collective with its sequence, pass and bucket, and the suspected rank. Ranks send
// each other their first cause before they close their connections (mesh.h), so survivors agree on
// it most of the time: Failure::rank is where it arose, and reported_by is the rank that holds it.
// A rank may have succeeded in the operation in which others failed. After a failure the group and
// its context are dead: make new ones on all ranks.
//
// Threads: as ProcessGroup says. The workers and the watchdog belong to the group, and end with it.
// Destruction: with work in flight the destructor aborts the group. In any case it returns within
// some tens of milliseconds, and the peers then see that this rank has left. A process that ends
// without it looks like a lost peer to the ranks that still run.
// Memory: ranks that share memory take half a megabyte each, once for a context. Gloo allocates a
// few small objects and its scratch segments for each operation; this class adds only one wrapper
// for each of Gloo's buffers. Signals: its threads block SIGPIPE; the process's disposition of the
// signal does not change. Fork: a child must not use its parent's groups; fork before making any. A
// child that goes on to exec another program keeps none of its parent's connections, unless it was
// forked while the group was connecting. A child that does not exec holds them open as long as it
// lives: if its parent is killed, peers notice that only by their timeout.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "reducer/base/status.h"
#include "reducer/comm/gloo/gloo_context.h"
#include "reducer/comm/process_group.h"
#include "reducer/comm/store.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct GlooOptions {
  enum class Algorithm : std::uint8_t { kRing, kBcube };

  // The longest time without progress of what runs; max() means no limit.
  platform::Duration timeout = std::chrono::seconds(30);
  int workers = 2;  // From 1 to 8; with shared memory there is one.
  Algorithm algorithm = Algorithm::kRing;
  // The ring's segment size, which decides the order of additions (G3).
  std::uint64_t max_segment_bytes = 1 << 20;
  std::uint64_t epoch = 0;  // Equal on all ranks; see gloo_context.h.
  // If false, nothing is compared, and ranks that differ end the process. This serves to measure
  // what agreement costs.
  bool agree = true;
};

class GlooProcessGroup final : public ProcessGroup {
 public:
  // Makes a group on a new context, which connects within connection.timeout. A collective
  // operation.
  static Result<std::unique_ptr<GlooProcessGroup>> connect(std::shared_ptr<Store> store, int rank,
                                                           int size, const GlooOptions& options,
                                                           const GlooContextOptions& connection);
  // Does the same with the operations' timeout for connecting, and the default address.
  static Result<std::unique_ptr<GlooProcessGroup>> connect(std::shared_ptr<Store> store, int rank,
                                                           int size, const GlooOptions& options);
  // Makes a group on a context that no other group uses now. It returns kInvalidArgument if one
  // does, or for options out of range, and the context's failure if it has one.
  static Result<std::unique_ptr<GlooProcessGroup>> create(std::shared_ptr<GlooContext> context,
                                                          const GlooOptions& options);
  ~GlooProcessGroup() override;

  int rank() const override;
  int size() const override;
  bool can_reduce(DType dtype) const override;  // All dtypes but kByte.
  bool can_scale(DType dtype) const override;   // float32 and float64, but not with kBcube.
  bool can_verify() const override { return true; }
  Status start(const Collective& collective, Work& work) override;
  void abort(const Status& cause) override;
  Status health() const override;
  platform::Duration timeout() const override;
  std::uint64_t progress() const override;

  const std::shared_ptr<GlooContext>& context() const;

 private:
  class Impl;
  explicit GlooProcessGroup(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
