// ProcessGroup runs collectives between the ranks of one group. Work is the handle of one
// collective in flight.
//
// Every rank of the group starts the same collectives in the same order (F6). A collective runs in
// the background and completes its Work. The implementations are Gloo (comm/gloo), NCCL (comm/nccl)
// and the simulated group (faults/sim).
//
// Threads: any thread may call anything at any time; each user of the group (F7) starts its
// collectives one after the other.
// Ownership: the caller owns data and Work, and keeps both alive until work.done(). A Work can be
// used again after that, so a steady training step allocates nothing. The group may hold a
// reference to a Work only until it has completed it.
// Failure: after the first failed operation the group is dead: all work in flight completes with
// the error, and later calls fail at once. abort() has the same effect on this rank, and peers
// notice it. In both cases every Work that was started completes soon after `timeout` has passed
// without progress of what runs. Nothing waits for ever unless the timeout is Duration::max().
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

// Reduction says how an all-reduce adds (G3). With kNative the transport adds in its fastest way,
// and the order depends on the transport and on the position of an element. kRankOrdered adds ((x0
// + x1) + x2) + ..., whatever the transport, the bucket, or the library's version is, and sends as
// many bytes as a ring does.
enum class Reduction : std::uint8_t { kNative, kRankOrdered };

// One collective as each rank states it. All fields but the pointers must be equal on all ranks
// (F6): the group compares them before any payload moves, and a difference is a kMismatch failure
// whose text shows both sides.
struct Collective {
  Op op = Op::kAllReduceSum;
  DType dtype = DType::kFloat32;
  // The elements of `data`; for kAllGather, those of one rank's contribution.
  std::uint64_t count = 0;
  Reduction reduction = Reduction::kNative;  // Only for kAllReduceSum.
  // Only for kAllReduceSum: each element of every rank counts as round(factor * x), rounded to the
  // dtype (G2). Values other than 1 need a group that can_scale().
  double factor = 1.0;
  // If set, each receiver checks every transfer (F3, verified.h), and sums are rank-ordered
  // whatever `reduction` says. This needs a group that can_verify().
  bool verify = false;
  int root = 0;                   // Only for kBroadcast.
  std::byte* data = nullptr;      // Input and result, in place; for kAllGather, the contribution.
  std::byte* gathered = nullptr;  // Only for kAllGather: size() * count elements, in rank order.
  // The device on which both buffers lie, which the group can_reach(); null is the host. The
  // collective begins after `ready` has passed there, and its Work completes after the device has
  // finished it.
  Device* device = nullptr;
  Event ready;
  std::int64_t pass = kNone;  // Labels for the comparison of headers, the trace and errors.
  int bucket = kNone;
  // Identifies the reducer that starts the collective, among several on one group (see Reducer).
  std::int64_t reducer_id = kNone;
};

// Hears of failed collectives from the thread of the group that completes them, while the thread
// that will wait for them may be busy with something else.
class WorkObserver {
 public:
  virtual ~WorkObserver() = default;
  virtual void failed(const Failure& failure) noexcept = 0;
  // Called last, whether it failed or not: from then on the observer is not used.
  virtual void ended() noexcept {}
};

class Work {
 public:
  Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Waits for the end, until the deadline. After kTimeout the operation still runs: abort the
  // group.
  Status wait(platform::Deadline deadline);
  bool done() const;

  // For the owner, before it starts a collective: if this collective fails, the observer hears of
  // it before done() is true. The observer must live until then.
  void observe(WorkObserver& observer) { observer_ = &observer; }
  // For decorators of process groups, before the collective starts: puts another observer in the
  // place of the owner's, which may be null, and returns that.
  WorkObserver* replace_observer(WorkObserver* observer) { return observer_.exchange(observer); }

  // For process groups. begin() arms the handle, which must not be in flight; complete() ends it,
  // once. No lock of the group is held then, as an observer may wait for a store.
  void begin(std::int64_t sequence);
  void complete(Status status);
  std::int64_t sequence() const;            // kNone before the first begin().
  platform::Duration completed_at() const;  // Meaningful once done(); as platform::now().

 private:
  mutable platform::Mutex mutex_;
  platform::CondVar completed_;
  bool in_flight_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::int64_t sequence_ LOCKSTEP_GUARDED_BY(mutex_) = kNone;
  platform::Duration completed_at_ LOCKSTEP_GUARDED_BY(mutex_){};
  Status status_ LOCKSTEP_GUARDED_BY(mutex_);
  platform::Atomic<WorkObserver*> observer_ =
      nullptr;  // of the next collective, or the one in flight
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;  // Aborts what is in flight, and returns within a bound (F5).

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Whether the group can sum this dtype (P17).
  virtual bool can_reduce(DType dtype) const = 0;

  // Whether the group's sums of this dtype scale what they add. The bits are those of scaling
  // first, with one pass over the data less. `data` is not scaled before the Work is done.
  virtual bool can_scale(DType) const { return false; }

  // Whether the group's collectives work on memory of this device.
  virtual bool can_reach(const Device& device) const;

  // Whether the group can check what it receives (F3). Corruption in transit is then a kCorrupted
  // failure that names the sender.
  virtual bool can_verify() const { return false; }

  // Starts a collective. An error means that nothing was started and `work` is not in flight.
  virtual Status start(const Collective& collective, Work& work) = 0;

  // Ends the group on this rank: work in flight completes with `cause`, later starts fail with it,
  // and connections to peers close so that the peers notice. The call is idempotent; the first
  // cause stays. A cause that says nothing of where it arose is that of a user, and arose here: see
  // cause_of_abort().
  virtual void abort(const Status& cause) = 0;

  // The first cause for which the group ended on this rank; ok while it is usable. An owner of two
  // groups asks the other one when one has failed, from any thread, also one of the other group. It
  // never waits. A group that does not keep its cause returns ok.
  virtual Status health() const { return {}; }

  // The group fails when what runs has made no progress for this long. A collective that waits
  // behind others has no deadline of its own.
  virtual platform::Duration timeout() const = 0;

  // A number that changes when what runs has made progress. A group that does not report progress
  // always returns 0.
  virtual std::uint64_t progress() const { return 0; }
};

// Records in which collective a failure occurred, unless the failure says so already: one that has
// a collective with its number also says of which bucket of which reducer that is, if of any.
void note_collective(Failure& failure, const Collective& collective, std::int64_t sequence);

// What a group on `rank` keeps of the cause that abort() is given. A cause that names no rank, no
// suspect and no collective is that of a user who gives up: this rank is the cause, for certain.
Status cause_of_abort(Status cause, int rank);

// Returns the failure that peers receive when `rank` aborts its group. It names that rank, and has
// the cause as text: the rank that the cause names may belong to another group (F7).
Failure abort_for_peers(const Status& cause, int rank);

// The deadline for callers that wait for a group which enforces `timeout` itself. It lies behind
// the group's own deadline; it is never() where the timeout is too long for one.
platform::Deadline deadline_behind(platform::Duration timeout);

// Waits for a collective of one of the groups, which enforce their own deadlines. As long as one of
// the groups makes progress the wait continues, since the collective may be queued. When none has
// made progress within deadline_behind() of the longest timeout, the call returns kTimeout and
// work.done() is false.
Status wait_behind(Work& work, std::initializer_list<const ProcessGroup*> groups);

// Returns kInvalidArgument for a collective that no group of `size` ranks can carry out: its root
// is none of them, its elements cannot be in memory `copies` times for each rank, or lie nowhere.
Status check_arguments(const Collective& collective, int size, int copies = 1);

// Calls start() and wait(), and aborts the group if the deadline passes.
Status run(ProcessGroup& group, const Collective& collective);
Status run(ProcessGroup& group, const Collective& collective, Work& work);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
