// Runs communication hooks on the buckets (S4).
#include <algorithm>
#include <exception>
#include <new>

#include "reducer/base/check.h"
#include "reducer/pass.h"
#include "reducer/reducer.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// A hook is user code: an exception of it is a failure like any other.
template <class Call>
Status guarded(const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return Status(Code::kUserFailure, error.what());
  } catch (...) {
    return Status(Code::kUserFailure, "it threw something that is no std::exception");
  }
}

}  // namespace

std::unique_ptr<HookBucket> Reducer::hooked(const Layout& layout, std::size_t b,
                                            const Bucket& bucket,
                                            const std::vector<Tensor>& bucket_views) {
  if (!options_.hook) return nullptr;
  const BucketLayout& shape = layout.buckets[b];
  Tensor flat(bucket.storage, 0, shape.dtype, Shape::row_major({shape.elements}));
  std::vector<Tensor> views;
  std::vector<std::size_t> parameters;
  for (const std::size_t reduced : bucket.members) {
    views.push_back(bucket_views[reduced]);
    parameters.push_back(reduced_parameters_[reduced].info);
  }
  const auto is_dense = [](const BucketLayout& each) { return !each.sparse; };
  const auto at = layout.buckets.begin() + static_cast<std::ptrdiff_t>(b);
  const HookBucket::Position position{static_cast<int>(b),
                                      std::none_of(layout.buckets.begin(), at, is_dense),
                                      std::none_of(at + 1, layout.buckets.end(), is_dense)};
  HookCollectives& collectives = *this;
  return std::make_unique<HookBucket>(collectives, position, std::move(flat), std::move(views),
                                      std::move(parameters));
}

// This implements HookCollectives, under the same lock as the launches of buckets without a hook.
Status Reducer::start(Collective& collective, Work& work, std::int64_t& trace_sequence) {
  platform::MutexLock lock(mutex_);
  return launch(collective, work, TraceEntry::What::kBucket, trace_sequence);
}

Status Reducer::await(Work& work, std::int64_t trace_sequence) {
  Status status = wait_for(work);
  platform::MutexLock lock(mutex_);
  close_trace(trace_sequence, status);
  return status;
}

// No user code runs under a lock. Other threads may complete buckets meanwhile; the thread that
// runs the hook launches those, too. After a failure this stays the last launch of the pass.
Status Reducer::start_hook(std::size_t b) {
  HookBucket& bucket = *buckets_[b].hooked;
  const platform::MutexUnlock unlocked(mutex_);
  bucket.begin(pass_->number, scale_.divisor(), factor_of(layout_.buckets[b].dtype),
               options_.reduction);
  Status status = guarded([&] { return options_.hook->start(bucket); });
  // This asks the hook for its name.
  return status.ok() ? status : hook_failed(std::move(status), b);
}

// Copies the hook's result to the bucket.
Status Reducer::finish_hook(std::size_t b) {
  HookBucket& bucket = *buckets_[b].hooked;
  if (Status status = bucket.wait(); !status.ok()) return hook_failed(std::move(status), b);
  if (const std::shared_ptr<Work> promised = bucket.promised()) {
    const platform::Duration timeout = backward_group().timeout();
    Status status =
        promised->wait(timeout == platform::Duration::max() ? platform::Deadline::never()
                                                            : platform::Deadline::in(timeout));
    if (!promised->done()) return hook_never_ended(b);
    if (!status.ok()) return hook_failed(std::move(status), b);
  }
  Tensor result;
  Status status = guarded([&]() -> Status {
    Result<Tensor> made = options_.hook->finish(bucket);
    if (!made) return made.error();
    result = std::move(*made);
    return bucket.wait();
  });
  if (!status.ok()) return hook_failed(std::move(status), b);
  const Tensor& flat = bucket.flat();
  const bool fits = result.defined() && result.dtype() == flat.dtype() &&
                    result.elements() == flat.elements() && result.shape().is_dense() &&
                    &result.device() == &flat.device();
  if (!fits)
    return hook_failed(
        Status(Code::kUserFailure, "its result must have the bucket's " +
                                       std::to_string(flat.elements()) + " elements of " +
                                       name_of(flat.dtype()) + ", dense, on its device"),
        b);
  if (result.data() != flat.data() && flat.elements() != 0) {
    const Tensor source(result.storage(),
                        (result.data() - result.storage()->data()) /
                            static_cast<std::int64_t>(size_of(result.dtype())),
                        result.dtype(), flat.shape());
    flat.device().copy(flat.device().current_stream(), source, flat);
  }
  bucket.end();
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
