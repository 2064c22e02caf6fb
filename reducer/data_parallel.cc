#include "reducer/data_parallel.h"

#include <utility>

namespace lockstep::inline LOCKSTEP_NS {

Result<std::unique_ptr<DataParallel>> DataParallel::create(std::vector<Ref<Parameter>> parameters,
                                                           Engine& engine, ReducerOptions options,
                                                           Membership membership) {
  Result<std::unique_ptr<Reducer>> reducer =
      Reducer::create(std::move(parameters), std::move(options), std::move(membership));
  if (!reducer) return failed(reducer.error());
  return std::unique_ptr<DataParallel>(new DataParallel(std::move(*reducer), engine));
}

Status DataParallel::forward(const Module& module, std::vector<Edge>& outputs) {
  LOCKSTEP_RETURN_IF_ERROR(reducer_->begin_forward());
  if (synced_) LOCKSTEP_RETURN_IF_ERROR(reducer_->rebuild_buckets());
  // Taken out while the user's code runs, which may throw, or call forward() itself.
  std::vector<Edge> made = std::exchange(made_, {});
  LOCKSTEP_RETURN_IF_ERROR(module(made));
  if (synced_) LOCKSTEP_RETURN_IF_ERROR(reducer_->arm(made, engine_));
  for (Edge& output : made) outputs.push_back(std::move(output));
  made.clear();
  made_ = std::move(made);
  return {};
}

Status DataParallel::forward_without_gradients(const Module& module) {
  std::vector<Edge> dropped;
  return module(dropped);
}

}  // namespace lockstep::inline LOCKSTEP_NS
