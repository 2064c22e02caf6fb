// check_group() says whether the process groups of a rank can do what its reducer needs: the
// dtypes and devices of its parameters, what the options ask for (P17), and that no other reducer
// averages the same gradients (F7). It is called at construction and after a reset.
// Threads: the thread that trains.
// Failure: kInvalidArgument, which says what to change.
#pragma once

#include "reducer/collective_launcher.h"
#include "reducer/module_state.h"
#include "reducer/options.h"
#include "reducer/replica_set.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

Status check_group(const CollectiveLauncher& collectives, const ReducerOptions& options,
                   const ReplicaSet& replicas, const ModuleState& state,
                   const GradientHook* reducer);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
