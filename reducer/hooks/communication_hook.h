// CommunicationHook replaces the sum of a bucket by code of the user (contract S4). HookBucket is
// one bucket, as the hook sees it.
//
// The reducer calls a hook twice for each bucket of a synced pass. It calls start() as soon as the
// bucket and all buckets before it are complete, while backward still runs. It calls finish() when
// backward has ended and the result is needed. The hook starts collectives through the bucket, and
// the reducer waits for those that start() began before it calls finish(). The gradients are not
// scaled (G4): computing the average is the hook's task.
//
// Threads: start() runs on the worker of the engine that completed the bucket, or on the thread
// that trains. finish() runs on the thread that trains, after every start() of the pass. The
// reducer makes both calls in bucket order, one at a time, and holds no lock of its own or of a
// parameter meanwhile, so start() may run a backward of its own. The methods of a HookBucket may be
// called only inside these two calls.
// Ownership: between the two calls the hook may change the bucket's memory. One hook object serves
// one reducer.
// Order: all ranks must start the same collectives in the same order. The collectives that finish()
// starts come after the usage map (T2).
// Failure: an error of the hook, whatever its code, or an exception is kUserFailure, with pass,
// bucket and parameters, on every rank; kOutOfMemory stays what it is, and so does an error of a
// collective that the hook started for this bucket. After a failure, the reducer may call
// start() for a bucket for which it never called finish(); the bucket for which is_first() holds
// always begins a pass. Sparse gradients bypass the hook (S1): the hook does not see their buckets,
// but index() counts them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reducer/comm/process_group.h"
#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// HookCollectives is what a HookBucket needs from its reducer.
class HookCollectives {
 public:
  virtual ~HookCollectives() = default;
  virtual Status start(Collective& collective, Work& work, std::int64_t& trace_sequence) = 0;
  virtual Status await(Work& work, std::int64_t trace_sequence) = 0;
};

class HookBucket {
 public:
  // `views` and `parameters` are in the order of the bucket's members.
  struct Position {
    int index = 0;  // In launch order.
    bool is_first = true;
    bool is_last = true;
  };
  HookBucket(HookCollectives& reducer, const Position& position, Tensor flat,
             std::vector<Tensor> views, std::vector<std::size_t> parameters);
  HookBucket(const HookBucket&) = delete;
  HookBucket& operator=(const HookBucket&) = delete;

  int index() const { return position_.index; }  // The bucket's index in launch order, from 0.
  // Whether the bucket is the first, or the last, of a pass among those that the hook sees.
  bool is_first() const { return position_.is_first; }
  bool is_last() const { return position_.is_last; }
  int ranks() const { return ranks_; }       // N, the number by which the sum is to be divided.
  double factor() const { return factor_; }  // The factor k of G2 for this bucket's dtype.
  // The whole bucket as one dimension, with the padding.
  const Tensor& flat() const { return flat_; }
  // Each parameter's gradient in the bucket, with the parameter's sizes and strides.
  std::span<const Tensor> views() const { return views_; }
  // The numbers of the parameters whose gradients these are. A parameter has the same number in
  // every bucket that it is ever assigned to, and on all ranks. The numbers count distinct
  // parameters, frozen ones included, from 0.
  std::span<const std::size_t> parameters() const { return parameters_; }

  // Starts the sum of a dense tensor over all ranks, in place, in the order of additions that the
  // reducer's options declare (G3). The bucket keeps the tensor alive until the sum is complete.
  Status all_reduce(const Tensor& tensor);
  // Waits for all collectives that were started.
  Status wait();
  // Returns a Work for something that the hook does on a thread of its own. The reducer does not
  // call finish() before the hook has called Work::complete() on it, once. A failure given to
  // complete() is a failure of the hook, whatever its code; if the Work is not completed within the
  // group's timeout, that is kTimeout. Call future() in start().
  std::shared_ptr<Work> future();

  // The reducer calls the functions from here on.
  void begin(int ranks, double factor, Reduction reduction);
  const std::shared_ptr<Work>& promised() const { return future_; }
  // Whether everything in flight has ended by the deadline.
  bool is_drained(platform::Deadline deadline);
  // Whether a collective of the hook failed in this pass, when it was started or afterwards.
  bool has_failed_collective() const { return has_failed_collective_; }
  void end();  // Releases the tensors and the future of the hook.

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
  int ranks_ = 1;
  double factor_ = 1.0;
  Reduction reduction_ = Reduction::kNative;
  std::vector<std::unique_ptr<Flight>> flights_;  // Reused from pass to pass, for their memory.
  std::size_t started_ = 0;  // The number of flights that this pass has started.
  std::size_t awaited_ = 0;
  bool has_failed_collective_ = false;
  std::shared_ptr<Work> future_;
};

class CommunicationHook {
 public:
  virtual ~CommunicationHook() = default;

  // The hook's name, which must be equal on all ranks (B4).
  virtual std::string name() const = 0;
  // The dtype in which the hook sums gradients of `dtype`. A group that cannot sum it is refused at
  // construction (P17).
  virtual DType wire_dtype(DType dtype) const { return dtype; }
  // Whether the hook can work on gradients on this device. If not, it is refused at construction,
  // too.
  virtual bool works_on(const Device& device) const {
    (void)device;
    return true;
  }

  virtual Status start(HookBucket& bucket) = 0;
  // Returns the average of the bucket: bucket.flat(), or a dense tensor of the same size and dtype
  // on the same device, which the reducer copies to the bucket before it calls the hook for the
  // next bucket.
  virtual Result<Tensor> finish(HookBucket& bucket) = 0;

  // Called on every rank before the first pass, and before the first pass after a reset: state from
  // earlier passes belongs to another group. After a failure of a pass that launched nothing, no
  // call is needed.
  virtual void reset() noexcept {}
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
