// BucketStore holds the buckets: their layout and memory, the views of the parameters in them, and
// what is in flight in each. It copies gradients into buckets, and sums back to gradients.
//
// A gradient takes this way: copy_dense_grad_to_bucket(), by the hook of its parameter;
// pack_bucket(), before the bucket's collective starts, for what a GPU copies in one launch;
// begin_unpack(), copy_bucket_to_grad() for each member whose sum is wanted, and end_unpack(), when
// the collective is complete.
//
// Threads: several workers may copy gradients to buckets at once, of different parameters.
// pack_bucket() runs under the reducer's mutex. All else belongs to the thread that trains, while
// no hook runs.
// Ownership: the parameters, the options and the memory of sparse gradients belong to others and
// outlive this. View mode: gradients are views of the buckets' memory, and keep it alive (B7).
// Memory: lay_out() allocates all of it, except for saved gradients (view mode) and gradients that
// are undefined.
// Failure: errors are those of the device and of sparse gradients, without rank, pass and bucket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "reducer/bucket/layout.h"
#include "reducer/comm_hook_driver.h"
#include "reducer/core/pass_core.h"
#include "reducer/options.h"
#include "reducer/replica_set.h"
#include "reducer/sparse_sum.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class BucketStore {
 public:
  struct Bucket {
    Ref<Storage> storage;               // Null if the bucket is sparse.
    std::unique_ptr<SparseSum> sparse;  // Null if the bucket is dense.
    std::vector<std::size_t> members;   // The indices of its members, in the order of the layout.
    std::int64_t trace_sequence = 0;
    Work work;
    // The rows of a sparse bucket: their numbers, and their values. None before they are sent.
    struct Rows {
      Work work;
      std::int64_t trace_sequence = 0;
    };
    std::array<Rows, 2> rows;
    std::size_t rows_sent = 0;
    bool is_skipped = false;  // Whether the running pass does not send it (skip_unused_buckets).
    // The bucket as the communication hook sees it; null without a hook.
    std::unique_ptr<HookBucket> hooked;
  };
  // What this rank contributes to the sum of a dense parameter.
  struct Contribution {
    double factor;  // Scales the gradient.
    bool is_zero;   // True if this rank is out of inputs: it contributes +0.
    // Whether some rank is known to have used the parameter. If none has, the gradient must be as
    // it was, after the pass (G5).
    bool is_sure;
  };

  BucketStore(ReplicaSet& replicas, const ReducerOptions& options)
      : replicas_(replicas), options_(options) {}

  // Makes the buckets of a layout, and tells the core. Gradients that are bucket views move to the
  // new buckets (B7). If memory runs out, nothing has changed.
  Status lay_out(Layout layout, const CommHookDriver& hooks, core::PassCore& core);
  // Call it before lay_out(), so that old and new buckets are not in memory at once: frees the
  // buckets in which no gradient lies. If lay_out() fails then, they lack memory until it succeeds.
  void free_unused_memory();
  bool lacks_memory() const;
  const Layout& layout() const { return layout_; }

  std::size_t size() const { return buckets_.size(); }
  bool empty() const { return buckets_.empty(); }
  Bucket& operator[](std::size_t b) { return buckets_[b]; }
  const Bucket& operator[](std::size_t b) const { return buckets_[b]; }
  auto begin() { return buckets_.begin(); }
  auto end() { return buckets_.end(); }
  DType dtype(std::size_t b) const { return layout_.buckets[b].dtype; }
  // Whether this rank uses one of its parameters in the running pass.
  bool is_used(const Bucket& bucket) const;
  bool is_sparse(const ReducedParameter& reduced) const {
    return buckets_[reduced.bucket].sparse != nullptr;
  }

  // A gradient may lie in a bucket outside of its own bucket view: the user swapped two gradients,
  // or set one with other strides. The sum of another parameter would overwrite it, so it is moved
  // out of the bucket (B7).
  Status detach_misplaced_views(const core::PassCore& core);

  // Copies the accumulated gradient, summed over the replicas, to its bucket view. An undefined
  // gradient counts as +0 (G1).
  Status copy_dense_grad_to_bucket(ReducedParameter& reduced, const Contribution& contribution);
  // The same for a sparse gradient, whose entries are sent when backward has ended (S1).
  Status copy_sparse_grad_to_bucket(ReducedParameter& reduced, double factor, bool is_zero);
  // Packs the members of a bucket that copy_dense_grad_to_bucket() has deferred: one launch,
  // however many they are.
  void pack_bucket(std::size_t b, double factor);
  // View mode: the gradients that are ready are no longer views of their buckets.
  void take_back_ready_views(const core::PassCore& core);

  // Makes the sum in the bucket view the gradient; in copying mode end_unpack() copies it there.
  // Further replicas of the parameter have no gradient after that (P15).
  void begin_unpack() { transfers_.clear(); }
  Status copy_bucket_to_grad(ReducedParameter& reduced);
  void end_unpack(std::size_t b);
  // A pass is over: gradients that were saved and not replaced are as they were (G5).
  void restore_stale_grads();

 private:
  bool grad_is_bucket_view(const ReducedParameter& reduced) const;
  Status detach_from_bucket(Parameter& parameter) const;
  Result<Tensor> all_entries(const ReducedParameter& reduced) const;
  void alias_grad_to_bucket(ReducedParameter& reduced);
  void sum_replicas(ReducedParameter& reduced, double factor);
  Status save_stale_grad(ReducedParameter& reduced);
  void restore_stale_grad(ReducedParameter& reduced);
  void drop_stale_grad(ReducedParameter& reduced);

  ReplicaSet& replicas_;
  const ReducerOptions& options_;
  Layout layout_;
  std::vector<Bucket> buckets_;
  // The transfers of the bucket that is being packed or unpacked; its capacity suffices for any
  // bucket.
  std::vector<Transfer> transfers_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
