#include "reducer/bucket_store.h"

#include <algorithm>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/tensor/sparse.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
// Makes the buckets of a layout. Gradients that are bucket views move to the new buckets (B7). If
// memory runs out, nothing has changed.
Status BucketStore::lay_out(Layout layout, const CommHookDriver& hooks, core::PassCore& core) {
  std::vector<std::size_t> reduced_at(replicas_.infos().size());
  for (std::size_t i = 0; i < replicas_.size(); ++i) reduced_at[replicas_[i].info] = i;
  std::vector<Bucket> buckets(layout.buckets.size());
  std::vector<Tensor> bucket_views(replicas_.size());
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const BucketLayout& bucket = layout.buckets[b];
    LOCKSTEP_CHECK(!bucket.members.empty());
    LOCKSTEP_CHECK(!bucket.sparse || bucket.members.size() == 1);
    Parameter& first = *replicas_[reduced_at[bucket.members[0].parameter]].parameter;
    for (const BucketMember& member : bucket.members)
      buckets[b].members.push_back(reduced_at[member.parameter]);
    if (bucket.sparse) {
      buckets[b].sparse = std::make_unique<SparseSum>(first);
      continue;
    }
    const std::size_t bytes = static_cast<std::size_t>(bucket.elements) * size_of(bucket.dtype);
    Device& device = first.device();
    Result<Ref<Storage>> storage = device.allocate(bytes);
    if (!storage) return storage.error();
    device.fill_zero(device.current_stream(), (*storage)->data(), bytes);
    buckets[b].storage = std::move(*storage);
    for (const BucketMember& member : bucket.members) {
      const std::size_t reduced = reduced_at[member.parameter];
      LOCKSTEP_CHECK(!bucket_views[reduced].defined());
      bucket_views[reduced] = Tensor(buckets[b].storage, member.offset, bucket.dtype,
                                     replicas_[reduced].parameter->shape());
    }
    if (!hooks.has_hook()) continue;
    std::vector<Tensor> views;
    std::vector<std::size_t> parameters;
    for (const std::size_t reduced : buckets[b].members) {
      views.push_back(bucket_views[reduced]);
      parameters.push_back(replicas_[reduced].info);
    }
    buckets[b].hooked =
        hooks.make_bucket(layout, b, buckets[b].storage, std::move(views), std::move(parameters));
  }
  std::size_t most = 0;
  for (const Bucket& bucket : buckets) most = std::max(most, bucket.members.size());
  transfers_.reserve(most);
  std::vector<std::uint32_t> bucket_of(replicas_.size());
  std::size_t members = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    members += buckets[b].members.size();
    for (const std::size_t index : buckets[b].members)
      bucket_of[index] = static_cast<std::uint32_t>(b);
  }
  LOCKSTEP_CHECK_EQ(members, replicas_.size());  // Each parameter is in one bucket.
  core.set_buckets(bucket_of, buckets.size());
  // Nothing below can fail.
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (const std::size_t index : buckets[b].members) {
      ReducedParameter& reduced = replicas_[index];
      if (grad_is_bucket_view(reduced)) {
        Device& device = reduced.parameter->device();
        device.copy(device.current_stream(), reduced.bucket_view, bucket_views[index]);
        reduced.parameter->move_grad(bucket_views[index]);
      }
      reduced.bucket_view = std::move(bucket_views[index]);
      reduced.bucket = b;
    }
  }
  layout_ = std::move(layout);
  buckets_ = std::move(buckets);
  return {};
}

bool BucketStore::is_used(const Bucket& bucket) const {
  return std::any_of(bucket.members.begin(), bucket.members.end(),
                     [this](std::size_t index) { return replicas_[index].used; });
}

void BucketStore::free_unused_memory() {
  for (Bucket& bucket : buckets_) {
    const auto& members = bucket.members;
    const bool is_used = std::any_of(members.begin(), members.end(), [this](std::size_t index) {
      return grad_is_bucket_view(replicas_[index]);
    });
    if (is_used) continue;
    for (const std::size_t index : members) replicas_[index].bucket_view = Tensor();
    bucket.hooked.reset();
    bucket.storage.reset();
  }
}

bool BucketStore::lacks_memory() const {
  return std::any_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) {
    return !bucket.storage && bucket.sparse == nullptr;
  });
}

// Whether the gradient is the bucket view already (B7).
bool BucketStore::grad_is_bucket_view(const ReducedParameter& reduced) const {
  const Tensor& gradient = reduced.parameter->grad();
  return gradient.defined() && reduced.bucket_view.defined() &&
         gradient.storage() == reduced.bucket_view.storage() &&
         gradient.data() == reduced.bucket_view.data() &&
         gradient.shape().same_strides(reduced.bucket_view.shape());
}

// A gradient may lie in a bucket outside of its own bucket view: the user swapped two gradients, or
// set one with other strides. The sum of another parameter would overwrite it, so it is moved out
// of the bucket (B7).
Status BucketStore::detach_misplaced_views(const core::PassCore& core) {
  LOCKSTEP_CHECK_EQ(core.gradient_count(), replicas_.gradient_count());
  if (!options_.gradient_as_bucket_view) return {};
  for (const ReducedParameter& reduced : replicas_) {
    if (core.is_parameter_ready(reduced.number) || !reduced.bucket_view.defined()) continue;
    const bool viewed = grad_is_bucket_view(reduced);
    Status status;
    replicas_.each_replica(reduced, [&](const ReplicaGradient& replica) {
      if (status.ok() && (&replica != &reduced || !viewed))
        status = detach_from_bucket(*replica.parameter);
    });
    LOCKSTEP_RETURN_IF_ERROR(std::move(status));
  }
  return {};
}

Status BucketStore::detach_from_bucket(Parameter& parameter) const {
  LOCKSTEP_CHECK(options_.gradient_as_bucket_view);  // No other gradient lies in a bucket.
  const Tensor& gradient = parameter.grad();
  const auto holds = [&](const Bucket& bucket) { return bucket.storage == gradient.storage(); };
  if (!gradient.defined() || std::none_of(buckets_.begin(), buckets_.end(), holds)) return {};
  Device& device = parameter.device();
  Result<Tensor> own = Tensor::empty(device, parameter.dtype(), parameter.shape());
  if (!own) return own.error();
  device.copy(device.current_stream(), gradient, *own);
  parameter.move_grad(std::move(*own));
  return {};
}

Status BucketStore::copy_sparse_grad_to_bucket(ReducedParameter& reduced, double factor,
                                               bool is_zero) {
  LOCKSTEP_CHECK(is_sparse(reduced));
  Result<Tensor> entries = is_zero ? Tensor() : all_entries(reduced);
  return entries ? buckets_[reduced.bucket].sparse->take(*entries, factor) : entries.error();
}

Status BucketStore::copy_dense_grad_to_bucket(ReducedParameter& reduced,
                                              const Contribution& contribution) {
  LOCKSTEP_CHECK(!reduced.to_pack);  // Each gradient is copied once in a pass.
  Parameter& parameter = *reduced.parameter;
  Device& device = parameter.device();
  const Stream stream = device.current_stream();
  const bool sure = contribution.is_sure;
  const double factor = contribution.factor;
  const bool viewed = grad_is_bucket_view(reduced);
  if (viewed && !sure) LOCKSTEP_RETURN_IF_ERROR(save_stale_grad(reduced));
  bool is_defined = false;
  replicas_.each_replica(reduced, [&](const ReplicaGradient& replica) {
    is_defined = is_defined || replica.parameter->grad().defined();
  });
  if (contribution.is_zero || !is_defined) {
    const auto elements = static_cast<std::size_t>(parameter.shape().elements());
    device.fill_zero(stream, reduced.bucket_view.data(), elements * size_of(parameter.dtype()));
    return {};
  }
  if (reduced.further_replica_count != 0) {
    sum_replicas(reduced, factor);
  } else if (!viewed || factor != 1.0) {
    // A launch costs more than a small copy, so the bucket of a GPU is packed as a whole.
    reduced.to_pack = !device.is_host();
    const Transfer transfer{&parameter.grad(), reduced.bucket_view.data(), &parameter.shape()};
    if (!reduced.to_pack) device.pack_bucket(stream, {&transfer, 1}, factor);
  }
  reduced.to_alias =
      options_.gradient_as_bucket_view && sure && !viewed && parameter.grad().defined();
  if (!reduced.to_pack) alias_grad_to_bucket(reduced);
  return {};
}

// Returns the gradient of a sparse parameter: the entries of each replica, one after the other.
Result<Tensor> BucketStore::all_entries(const ReducedParameter& reduced) const {
  const Parameter& parameter = *reduced.parameter;
  LOCKSTEP_CHECK(parameter.has_sparse_gradients());
  if (reduced.further_replica_count == 0) return parameter.grad();
  Device& device = parameter.device();
  Result<Tensor> all = empty_sparse(device, parameter.dtype(), parameter.shape(), {});
  replicas_.each_replica(reduced, [&](const ReplicaGradient& replica) {
    const Tensor& own = replica.parameter->grad();
    if (all && own.defined()) all = append(*all, own);
  });
  return all;
}

// View mode: makes the bucket view the gradient from here on (B7).
void BucketStore::alias_grad_to_bucket(ReducedParameter& reduced) {
  if (reduced.to_alias) reduced.parameter->move_grad(reduced.bucket_view);
}

// Packs the members of a bucket that copy_dense_grad_to_bucket() has deferred: one launch, however
// many they are.
void BucketStore::pack_bucket(std::size_t b, double factor) {
  LOCKSTEP_CHECK_LT(b, buckets_.size());
  const Bucket& bucket = buckets_[b];
  if (bucket.sparse || bucket.storage->device().is_host()) return;
  LOCKSTEP_CHECK_LE(bucket.members.size(), transfers_.capacity());  // lay_out() has reserved it.
  transfers_.clear();
  for (const std::size_t index : bucket.members) {
    const ReducedParameter& reduced = replicas_[index];
    if (reduced.to_pack)
      transfers_.push_back(
          {&reduced.parameter->grad(), reduced.bucket_view.data(), &reduced.parameter->shape()});
  }
  if (transfers_.empty()) return;
  Device& device = bucket.storage->device();
  device.pack_bucket(device.current_stream(), transfers_, factor);
  for (const std::size_t index : bucket.members) {
    ReducedParameter& reduced = replicas_[index];
    if (std::exchange(reduced.to_pack, false)) alias_grad_to_bucket(reduced);
  }
}

// Between two backwards of a pass the gradients belong to the user, who does not see those that
// have been copied to their buckets (B7).
void BucketStore::take_back_ready_views(const core::PassCore& core) {
  if (!options_.gradient_as_bucket_view) return;
  for (ReducedParameter& reduced : replicas_) {
    if (!core.is_parameter_ready(reduced.number) || !grad_is_bucket_view(reduced)) continue;
    LOCKSTEP_CHECK(!reduced.to_pack);  // All buckets have been packed before.
    reduced.parameter->move_grad(
        std::move(reduced.saved_grad));  // Undefined, unless it may have to be restored (G5).
    drop_stale_grad(reduced);
  }
}

// Sums the gradients of the replicas, in their order (P15); undefined gradients are left out. All
// lie on one device or on host devices, so what their workers have submitted comes before this.
// Where the bucket view is a gradient, that of the first replica, it is the first one already.
void BucketStore::sum_replicas(ReducedParameter& reduced, double factor) {
  Device& device = reduced.parameter->device();
  const Stream stream = device.current_stream();
  const bool viewed = grad_is_bucket_view(reduced);
  bool is_first = true;
  replicas_.each_replica(reduced, [&](const ReplicaGradient& replica) {
    const Tensor& own = replica.parameter->grad();
    if (!own.defined()) return;
    const Transfer transfer{&own, reduced.bucket_view.data(), &reduced.parameter->shape()};
    if (!is_first)
      device.add(stream, own, reduced.bucket_view);
    else if (!viewed)
      device.pack_bucket(stream, {&transfer, 1}, 1.0);
    is_first = false;
  });
  LOCKSTEP_CHECK(!is_first);
  const Transfer scaled{&reduced.bucket_view, reduced.bucket_view.data(),
                        &reduced.parameter->shape()};
  if (factor != 1.0) device.pack_bucket(stream, {&scaled, 1}, factor);
}

// It is possible that no rank used a parameter whose gradient is its bucket view. The gradient's
// current value is then needed again (G5), but the sum will overwrite it; so it is saved.
Status BucketStore::save_stale_grad(ReducedParameter& reduced) {
  LOCKSTEP_CHECK(!reduced.is_grad_saved);
  Device& device = reduced.parameter->device();
  Result<Tensor> kept =
      Tensor::empty(device, reduced.parameter->dtype(), reduced.parameter->shape());
  if (!kept) return kept.error();
  device.copy(device.current_stream(), reduced.bucket_view, *kept);
  reduced.saved_grad = std::move(*kept);
  reduced.is_grad_saved = true;
  return {};
}

void BucketStore::restore_stale_grad(ReducedParameter& reduced) {
  if (!reduced.is_grad_saved) return;
  LOCKSTEP_CHECK(reduced.saved_grad.defined());
  Device& device = reduced.parameter->device();
  device.copy(device.current_stream(), reduced.saved_grad, reduced.bucket_view);
  drop_stale_grad(reduced);
}

void BucketStore::drop_stale_grad(ReducedParameter& reduced) {
  reduced.saved_grad = Tensor();
  reduced.is_grad_saved = false;
}

void BucketStore::restore_stale_grads() {
  for (ReducedParameter& reduced : replicas_) restore_stale_grad(reduced);
}

// Makes the sum in the bucket view the gradient; in copying mode transfers_ copies it there.
// Further replicas of the parameter have no gradient after that (P15).
Status BucketStore::copy_bucket_to_grad(ReducedParameter& reduced) {
  Parameter& parameter = *reduced.parameter;
  Device& device = parameter.device();
  replicas_.each_further_replica(
      reduced, [](const ReplicaGradient& replica) { replica.parameter->undefine_grad(); });
  // The graph that the gradient was computed from ends here (P16). This happens on a rank that
  // shadows the pass (S2), as other ranks refused such a gradient.
  if (parameter.grad().requires_grad()) {
    Tensor plain = parameter.grad();
    plain.set_requires_grad(false);
    parameter.set_grad(std::move(plain));
  }
  if (SparseSum* const sparse = buckets_[reduced.bucket].sparse.get()) {
    Result<Tensor> sum = sparse->sum();
    if (!sum) return sum.error();
    parameter.move_grad(std::move(*sum));
    parameter.mark_reduced();
    return {};
  }
  LOCKSTEP_CHECK(!reduced.to_pack);  // The bucket was packed before it was launched.
  LOCKSTEP_CHECK(reduced.bucket_view.storage() == buckets_[reduced.bucket].storage);
  if (reduced.is_grad_saved) drop_stale_grad(reduced);
  if (options_.gradient_as_bucket_view) {
    if (!grad_is_bucket_view(reduced)) parameter.move_grad(reduced.bucket_view);
    parameter.mark_reduced();
    return {};
  }
  if (!parameter.grad().defined() || parameter.grad().shape().is_expanded()) {
    Result<Tensor> fresh = Tensor::empty(device, parameter.dtype(), parameter.shape());
    if (!fresh) return fresh.error();
    parameter.move_grad(std::move(*fresh));
  }
  LOCKSTEP_CHECK_LT(transfers_.size(), transfers_.capacity());  // lay_out() has reserved it.
  transfers_.push_back({&parameter.grad(), reduced.bucket_view.data(), &parameter.shape()});
  parameter.mark_reduced();
  return {};
}

void BucketStore::end_unpack(std::size_t b) {
  if (transfers_.empty()) return;
  LOCKSTEP_CHECK(buckets_[b].storage);
  LOCKSTEP_CHECK_LE(transfers_.size(), buckets_[b].members.size());
  Device& device = buckets_[b].storage->device();
  device.unpack_bucket(device.current_stream(), transfers_);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
