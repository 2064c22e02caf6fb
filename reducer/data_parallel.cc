#include "reducer/data_parallel.h"

#include <algorithm>
#include <iterator>

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
  std::vector<Edge> made;
  LOCKSTEP_RETURN_IF_ERROR(module(made));
  if (synced_) LOCKSTEP_RETURN_IF_ERROR(reducer_->arm(made, engine_));
  if (outputs.empty())
    outputs = std::move(made);
  else
    std::move(made.begin(), made.end(), std::back_inserter(outputs));
  return {};
}

Status DataParallel::forward_without_gradients(const Module& module) {
  std::vector<Edge> dropped;
  return module(dropped);
}

}  // namespace lockstep::inline LOCKSTEP_NS
