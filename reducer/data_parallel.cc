#include "reducer/data_parallel.h"

#include <exception>
#include <new>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

Result<std::unique_ptr<DataParallel>> DataParallel::create(std::vector<Ref<Parameter>> parameters,
                                                           Engine& engine, ReducerOptions options,
                                                           Membership membership) try {
  const bool auto_sync = options.auto_sync;
  Result<std::unique_ptr<Reducer>> reducer =
      Reducer::create(std::move(parameters), std::move(options), std::move(membership));
  if (!reducer) return failed(reducer.error());
  return std::unique_ptr<DataParallel>(new DataParallel(std::move(*reducer), engine, auto_sync));
} catch (const std::bad_alloc&) {
  return failed(out_of_memory());
}

namespace {

// Runs the user's code, and leaves a note for the peers if that fails.
Status run(const Reducer& reducer, const DataParallel::Module& module, std::vector<Edge>& made) {
  try {
    Status status = module(made);
    if (!status.ok()) attempt([&] { reducer.leave_note(status.to_string()); });
    return status;
  } catch (const std::exception& error) {
    attempt([&] { reducer.leave_note(error.what()); });
    throw;
  }
}

}  // namespace

Status DataParallel::forward(const Module& module, std::vector<Edge>& outputs) try {
  LOCKSTEP_RETURN_IF_ERROR(reducer_->begin_forward());
  LOCKSTEP_RETURN_IF_ERROR(reducer_->refresh_state());
  if (synced()) LOCKSTEP_RETURN_IF_ERROR(reducer_->rebuild_buckets());
  // The vector is moved out while the user's code runs, which may throw, or call forward() itself.
  std::vector<Edge> made = std::exchange(made_, {});
  LOCKSTEP_CHECK(made.empty());  // A forward that failed has left no outputs.
  LOCKSTEP_RETURN_IF_ERROR(run(*reducer_, module, made));
  if (synced()) LOCKSTEP_RETURN_IF_ERROR(reducer_->arm(made, engine_.numbers()));
  outputs.reserve(outputs.size() + made.size());
  for (Edge& output : made) outputs.push_back(std::move(output));
  made.clear();
  made_ = std::move(made);
  return {};
} catch (const std::bad_alloc&) {
  return reducer_->memory_refused();
}

Status DataParallel::sync_gradients(std::vector<Edge>& outputs) try {
  if (auto_sync_)
    return Status(
        Code::kInvalidArgument,
        "sync_gradients is for auto_sync off: with it on, the forward has synced already");
  if (!synced_)
    return Status(Code::kInvalidArgument, "sync_gradients was called while a NoSync lives");
  LOCKSTEP_RETURN_IF_ERROR(reducer_->begin_forward());
  LOCKSTEP_RETURN_IF_ERROR(reducer_->rebuild_buckets());
  return reducer_->arm(outputs, engine_.numbers());
} catch (const std::bad_alloc&) {
  return reducer_->memory_refused();
}

Status DataParallel::forward_without_gradients(const Module& module) try {
  if (reducer_->poisoned().ok()) LOCKSTEP_RETURN_IF_ERROR(reducer_->copy_to_replicas());
  std::vector<Edge> dropped;
  return module(dropped);
} catch (const std::bad_alloc&) {
  return reducer_->memory_refused();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
