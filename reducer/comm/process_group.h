// ProcessGroup: collectives between the ranks of one group. Work: the handle of one collective in
// flight.
//
// A collective is started on every rank of the group in the same order (F6); it runs in the
// background and ends in its Work. The implementations are Gloo (comm/gloo), NCCL (comm/nccl) and
// the simulated one (faults/sim).
//
// Threads: any may call anything at any time; each user of the group (F7) starts its collectives
// one after the other. Ownership: the caller owns data and Work, and keeps both alive until
// work.done(). A Work can be used again after that, so that a steady training step allocates
// nothing. The group may hold a reference to a Work only until it completed it. Failure: after the
// first failed operation the group is dead: all work in flight completes with the error, later
// calls fail at once. abort() is the same from this side, and peers notice it. Either way every
// started Work completes a timeout and a little after the last progress of what runs; nothing waits
// for ever unless the timeout is Duration::max().
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "reducer/base/dtype.h"
#include "reducer/base/status.h"
#include "reducer/device/stream.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

enum class Op : std::uint8_t { kAllReduceSum, kBroadcast, kAllGather };
const char* name_of(Op op);

// How an all-reduce adds (G3). kNative: as the transport does it fastest; the order depends on it,
// and on where an element lies. kRankOrdered: ((x0 + x1) + x2) + ..., whatever the transport, the
// bucket, or the library's version; as many bytes on the wire as a ring.
enum class Reduction : std::uint8_t { kNative, kRankOrdered };

// One collective as each rank states it. All fields but the pointers must be equal on all ranks
// (F6): the group compares them before any payload moves, and a difference is a kMismatch failure
// that tells both sides.
struct Collective {
  Op op = Op::kAllReduceSum;
  DType dtype = DType::kFloat32;
  std::uint64_t count = 0;  // elements: of `data`; for kAllGather of one rank's contribution
  Reduction reduction = Reduction::kNative;  // kAllReduceSum
  // kAllReduceSum: every rank's elements count as round(factor * x), rounded to the dtype (G2).
  // Other than 1 only where the group can_scale().
  double factor = 1.0;
  // Every transfer is checked by its receiver (F3, verified.h); sums are rank-ordered then,
  // whatever `reduction` says. Only where the group can_verify().
  bool verify = false;
  int root = 0;                   // kBroadcast
  std::byte* data = nullptr;      // in place: input and result; kAllGather: the contribution
  std::byte* gathered = nullptr;  // kAllGather: size() * count elements, in rank order
  // Where both lie: a device that the group can_reach(); null is the host. It begins when `ready`
  // has passed there, and is done, as its Work says, when the device is.
  Device* device = nullptr;
  Event ready;
  std::int64_t pass = kNone;  // labels for agreement, trace and errors
  int bucket = kNone;
  std::int64_t reducer_id = kNone;  // which of several users of one group starts it (see Reducer)
};

class Work {
 public:
  Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Waits for the end, until the deadline. kTimeout leaves the operation running: abort the group.
  Status wait(platform::Deadline deadline);
  bool done() const;

  // For process groups. begin() arms the handle (it must not be in flight); complete() ends it,
  // once.
  void begin(std::int64_t sequence);
  void complete(Status status);
  std::int64_t sequence() const;            // kNone before the first begin()
  platform::Duration started_at() const;    // on platform::now()'s scale
  platform::Duration completed_at() const;  // meaningful once done()

 private:
  mutable platform::Mutex mutex_;
  platform::CondVar completed_;
  bool in_flight_ = false;
  std::int64_t sequence_ = kNone;
  platform::Duration started_at_{};
  platform::Duration completed_at_{};
  Status status_;
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;  // aborts what is in flight, returns within a bound (F5)

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Whether the group can sum this dtype (P17).
  virtual bool can_reduce(DType dtype) const = 0;

  // Whether its sums of this dtype scale what they add: the bits of scaling it first, for the price
  // of one pass over the data less. `data` is not scaled before the Work is done.
  virtual bool can_scale(DType) const { return false; }

  // Whether the group's collectives work on memory of this device.
  virtual bool can_reach(const Device& device) const;

  // Whether the group can check what it receives (F3): what is corrupted on its way is a kCorrupted
  // failure then, which names the sender.
  virtual bool can_verify() const { return false; }

  // Starts a collective; an error means that nothing was started and `work` is not in flight.
  virtual Status start(const Collective& collective, Work& work) = 0;

  // Ends the group on this side: work in flight completes with `cause`, later starts fail with it,
  // connections to peers close so that they notice. Idempotent; the first cause stays.
  virtual void abort(const Status& cause) = 0;

  // The longest time without progress of what runs: then the group fails. A collective that waits
  // behind others has no deadline of its own.
  virtual platform::Duration timeout() const = 0;

  // A number that is another one when what runs has come further since; always 0 from a group that
  // does not tell.
  virtual std::uint64_t progress() const { return 0; }
};

// Says in which collective a failure was met, unless it says so already.
void note_collective(Failure& failure, const Collective& collective, std::int64_t sequence);

// When to give up waiting for a group that keeps `timeout` itself: the line behind that line;
// never() where the timeout is too long for one.
platform::Deadline deadline_behind(platform::Duration timeout);

// Waits for a collective of one of the groups, which end what they started themselves. As long as
// one of them makes progress the wait goes on, since the collective may be queued; when none has
// come further within deadline_behind() of the longest timeout, it ends with kTimeout and
// work.done() is false.
Status wait_behind(Work& work, std::initializer_list<const ProcessGroup*> groups);

// start() and wait() in one; aborts the group if the deadline passes.
Status run(ProcessGroup& group, const Collective& collective);
Status run(ProcessGroup& group, const Collective& collective, Work& work);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
