#include "reducer/comm_hook_driver.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/base/status.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// A hook is user code: an exception of it is a failure like any other.
template <class Call>
Status run_user_code(const Call& call) {
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

std::unique_ptr<HookBucket> CommHookDriver::make_bucket(const Layout& layout, std::size_t b,
                                                        Ref<Storage> storage,
                                                        std::vector<Tensor> views,
                                                        std::vector<std::size_t> parameters) const {
  if (!hook_) return nullptr;
  LOCKSTEP_CHECK_LT(b, layout.buckets.size());
  const BucketLayout& shape = layout.buckets[b];
  LOCKSTEP_CHECK(!shape.sparse);
  LOCKSTEP_CHECK_EQ(views.size(), shape.members.size());
  Tensor flat(std::move(storage), 0, shape.dtype, Shape::row_major({shape.elements}));
  const auto is_dense = [](const BucketLayout& each) { return !each.sparse; };
  const auto at = layout.buckets.begin() + static_cast<std::ptrdiff_t>(b);
  const HookBucket::Position position{static_cast<int>(b),
                                      std::none_of(layout.buckets.begin(), at, is_dense),
                                      std::none_of(at + 1, layout.buckets.end(), is_dense)};
  return std::make_unique<HookBucket>(collectives_, position, std::move(flat), std::move(views),
                                      std::move(parameters));
}

Status CommHookDriver::start(HookBucket& bucket, int divisor, double factor,
                             Reduction reduction) const {
  LOCKSTEP_CHECK(has_hook());
  bucket.begin(divisor, factor, reduction);
  Status status = run_user_code([&] { return hook_->start(bucket); });
  // This asks the hook for its name.
  return status.ok() ? status : failure_of(std::move(status), bucket);
}

Status CommHookDriver::finish(HookBucket& bucket, platform::Duration timeout) const {
  LOCKSTEP_CHECK(has_hook());
  if (Status status = bucket.wait(); !status.ok()) return failure_of(std::move(status), bucket);
  if (const std::shared_ptr<Work> promised = bucket.promised()) {
    Status status =
        promised->wait(timeout == platform::Duration::max() ? platform::Deadline::never()
                                                            : platform::Deadline::in(timeout));
    if (!promised->done()) return never_ended();
    if (!status.ok()) return failure_of(std::move(status), bucket);
  }
  Tensor result;
  Status status = run_user_code([&]() -> Status {
    Result<Tensor> made = hook_->finish(bucket);
    if (!made) return made.error();
    result = std::move(*made);
    return bucket.wait();
  });
  if (!status.ok()) return failure_of(std::move(status), bucket);
  const Tensor& flat = bucket.flat();
  const bool fits = result.defined() && result.dtype() == flat.dtype() &&
                    result.elements() == flat.elements() && result.shape().is_dense() &&
                    &result.device() == &flat.device();
  if (!fits)
    return failure_of(
        Status(Code::kUserFailure, "its result must have the bucket's " +
                                       std::to_string(flat.elements()) + " elements of " +
                                       name_of(flat.dtype()) + ", dense, on its device"),
        bucket);
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

// Completes a failure in or around the communication hook of a bucket (S4). An error of the group
// stays what it is. A hook may fail with any code, also with one of those that groups fail with:
// only if a collective of the hook failed is it an error of the group. That may have another code,
// and names its collective then: a peer whose memory was refused.
Status CommHookDriver::failure_of(Status status, const HookBucket& bucket) const {
  LOCKSTEP_CHECK(!status.ok());
  Failure& failure = status.failure();
  const bool is_groups = concerns_group(failure.code) || !failure.collective.empty();
  if (!is_groups || !bucket.has_failed_collective()) {
    if (failure.code != Code::kOutOfMemory) failure.code = Code::kUserFailure;
    failure.rank = kNone;
    failure.suspect = kNone;
    failure.sequence = kNone;
    failure.collective.clear();
    failure.detail = "the communication hook " + hook_->name() + " failed: " + failure.detail;
  }
  return status;
}

Failure CommHookDriver::never_ended() const {
  Failure failure;
  failure.code = Code::kTimeout;
  failure.definite = true;
  failure.detail = "the communication hook " + hook_->name() +
                   " has not completed its future within the timeout of the group";
  return failure;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
