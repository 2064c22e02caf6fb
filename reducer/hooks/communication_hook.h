// CommunicationHook: what a user puts in the place of a bucket's sum (contract S4). HookBucket: one
// bucket, as the hook sees it.
//
// A hook is called twice for each bucket of a synced pass: start() as soon as the bucket and all
// before it are complete, while backward still runs; finish() when backward has ended and the
// result is needed. It starts collectives through the bucket, and the reducer waits for those that
// start() began before it calls finish(). The gradients are not scaled (G4): the average is the
// hook's business.
//
// Threads: start() runs on the worker of the engine that completed the bucket, or on the thread
// that trains; finish() on the thread that trains, after every start() of the pass. Both in bucket
// order, one call at a time, without a lock of the reducer or of a parameter held: start() may run
// a backward of its own. A HookBucket's methods may be called inside of these two alone. Ownership:
// between the two calls the bucket's memory is the hook's to change. One hook object serves one
// reducer. Order: all ranks must start the same collectives in the same order; what finish() starts
// comes after the usage map (T2). Failure: an error or an exception of the hook is kUserFailure,
// with pass, bucket and parameters, on every rank; an error of a collective stays what it is. After
// a failure start() may be called for a bucket that finish() was never called for; the bucket that
// is_first() always begins a pass. Sparse gradients go by no hook (S1): their buckets are left out,
// and count all the same in index().
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reducer/comm/process_group.h"
#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// What a bucket needs of its reducer.
class HookCollectives {
 public:
  virtual ~HookCollectives() = default;
  virtual Status start(Collective& collective, Work& work, std::int64_t& trace_sequence) = 0;
  virtual Status await(Work& work, std::int64_t trace_sequence) = 0;
};

class HookBucket {
 public:
  // `views` and `parameters` in the order of the bucket's members.
  struct Position {
    int index = 0;  // in launch order
    bool is_first = true;
    bool is_last = true;
  };
  HookBucket(HookCollectives& reducer, const Position& position, Tensor flat,
             std::vector<Tensor> views, std::vector<std::size_t> parameters);
  HookBucket(const HookBucket&) = delete;
  HookBucket& operator=(const HookBucket&) = delete;

  int index() const { return position_.index; }  // in launch order, from 0
  // Of a pass, among those that the hook sees.
  bool is_first() const { return position_.is_first; }
  bool is_last() const { return position_.is_last; }
  std::int64_t pass() const { return pass_; }
  int ranks() const { return ranks_; }          // N: what the sum is to be divided by
  double factor() const { return factor_; }     // k of G2 for this bucket's dtype
  const Tensor& flat() const { return flat_; }  // all of it: one dimension, with the padding
  // Each parameter's gradient in it, with the parameter's sizes and strides.
  std::span<const Tensor> views() const { return views_; }
  // Whose they are: the same number for a parameter in every bucket that it comes to lie in, equal
  // on all ranks. It counts distinct parameters, frozen ones included, from 0.
  std::span<const std::size_t> parameters() const { return parameters_; }

  // Starts the sum over all ranks of a dense tensor, in place, added up as the reducer was told to
  // (G3). The bucket keeps the tensor alive until the sum is there.
  Status all_reduce(const Tensor& tensor);
  // Waits for all that was started.
  Status wait();
  // Something that the hook does on a thread of its own: finish() is not called before this has
  // been completed, by Work::complete(), once. A failure given to it is one of the hook; if it is
  // not completed within the group's timeout, that is kTimeout. Call it in start().
  std::shared_ptr<Work> future();

  // For the reducer.
  void begin(std::int64_t pass, int ranks, double factor, Reduction reduction);
  const std::shared_ptr<Work>& promised() const { return future_; }
  bool is_drained(platform::Deadline deadline);  // what is in flight has ended by then
  void end();                                    // lets go of what the hook gave it

 private:
  struct Flight {
    Work work;
    std::int64_t trace_sequence = 0;
    Tensor tensor;
  };
  HookCollectives& reducer_;
  const Position position_;
  const Tensor flat_;
  const std::vector<Tensor> views_;
  const std::vector<std::size_t> parameters_;
  std::int64_t pass_ = kNone;
  int ranks_ = 1;
  double factor_ = 1.0;
  Reduction reduction_ = Reduction::kNative;
  std::vector<std::unique_ptr<Flight>> flights_;  // kept from pass to pass, for their memory
  std::size_t started_ = 0;                       // of them, in this pass
  std::size_t awaited_ = 0;
  std::shared_ptr<Work> future_;
};

class CommunicationHook {
 public:
  virtual ~CommunicationHook() = default;

  // Equal on all ranks (B4).
  virtual std::string name() const = 0;
  // What it sums for gradients of this dtype; a group that cannot is refused at construction (P17).
  virtual DType wire_dtype(DType dtype) const { return dtype; }
  // Whether it can work on gradients there; else it is refused at construction, too.
  virtual bool works_on(const Device& device) const {
    (void)device;
    return true;
  }

  virtual Status start(HookBucket& bucket) = 0;
  // The bucket's average: bucket.flat(), or a dense tensor of its size and dtype on its device,
  // which is copied there before the call for the next bucket.
  virtual Result<Tensor> finish(HookBucket& bucket) = 0;

  // Before the first pass, and before the first one after a reset, on every rank: what was kept
  // from pass to pass belongs to another group. A failure whose pass launched nothing needs none.
  virtual void reset() noexcept {}
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
