#include "reducer/group_checks.h"

#include <string>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// Checks that the group can sum this dtype (P17).
Status check_dtype(const Parameter& parameter, const CollectiveLauncher& collectives,
                   const ReducerOptions& options) {
  LOCKSTEP_CHECK(parameter.requires_grad());  // Nothing is summed of the others.
  const DType dtype = parameter.dtype();
  if (!collectives.backward_group().can_reduce(real_of(dtype)))
    return Status(Code::kInvalidArgument, "the process group cannot reduce " +
                                              std::string(name_of(dtype)) +
                                              ", the dtype of parameter " + parameter.name());
  if (!options.hook || parameter.has_sparse_gradients()) return {};
  const DType wire = options.hook->wire_dtype(dtype);
  if (collectives.backward_group().can_reduce(real_of(wire))) return {};
  return Status(Code::kInvalidArgument, "the process group cannot reduce " +
                                            std::string(name_of(wire)) + ", which the hook " +
                                            options.hook->name() + " makes of parameter " +
                                            parameter.name());
}

// Checks that the groups' collectives work on the memory that the reducer passes to them.
Status check_reach(const CollectiveLauncher& collectives, const ReducerOptions& options,
                   const ReplicaSet& replicas, const ModuleState& state) {
  const auto check = [](const ProcessGroup& group, const Device& device, const std::string& name) {
    if (group.can_reach(device)) return Status();
    return Status(Code::kInvalidArgument,
                  "the process group cannot work on memory of device " +
                      std::to_string(device.index()) + ", where " + name +
                      " is: give one of that device (NCCL for a GPU, Gloo for the host)");
  };
  for (const ReducedParameter& reduced : replicas) {
    LOCKSTEP_RETURN_IF_ERROR(check_dtype(*reduced.parameter, collectives, options));
    LOCKSTEP_RETURN_IF_ERROR(check(collectives.backward_group(), reduced.parameter->device(),
                                   reduced.parameter->name()));
  }
  for (const Device* device : state.devices())
    LOCKSTEP_RETURN_IF_ERROR(check(collectives.group(), *device, "a value or a buffer"));
  return {};
}

// Reducers may share a group if they have different parameters (F7). If two reducers averaged one
// gradient, each would reduce what the other one has written to it.
Status check_other_reducers(const CollectiveLauncher& collectives, const ReplicaSet& replicas,
                            const GradientHook* reducer) {
  Status status;
  const auto check = [&](const ReplicaGradient& replica) {
    const Parameter& parameter = *replica.parameter;
    if (!status.ok() || (!parameter.is_sent_by(collectives.group(), reducer) &&
                         !parameter.is_sent_by(collectives.backward_group(), reducer)))
      return;
    status = Status(Code::kInvalidArgument,
                    "parameter " + parameter.name() +
                        " belongs to another reducer on this process group: destroy that one "
                        "first, or leave the parameter out of one of them by "
                        "ReducerOptions::ignored");
    status.failure().parameters = {parameter.name()};
  };
  for (const ReducedParameter& reduced : replicas) replicas.each_replica(reduced, check);
  return status;
}

}  // namespace

Status check_group(const CollectiveLauncher& collectives, const ReducerOptions& options,
                   const ReplicaSet& replicas, const ModuleState& state,
                   const GradientHook* reducer) {
  LOCKSTEP_CHECK(reducer != nullptr);
  const ProcessGroup& second = collectives.backward_group();
  if (second.rank() != collectives.rank() || second.size() != collectives.size())
    return Status(Code::kInvalidArgument,
                  "the backward group is not one of the same ranks in the same order");
  if (options.verify_payload && !(collectives.group().can_verify() && second.can_verify()))
    return Status(Code::kInvalidArgument,
                  "the process group cannot check what it receives: turn verify_payload off");
  LOCKSTEP_RETURN_IF_ERROR(check_reach(collectives, options, replicas, state));
  return check_other_reducers(collectives, replicas, reducer);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
