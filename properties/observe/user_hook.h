// A communication hook such as a user may write (S4). It reduces a copy of the bucket and returns
// the copy, new in every pass, instead of the bucket. The options of the program say what it
// returns, when its result is complete, and which local backward it runs (reference/replicated.h).
//
// Failure: the hook throws if its arguments are not what S4 promises (the order of buckets, which
// one is the last, the divisor, and views that cover the bucket in the strides of dense
// parameters), if finish() is called before its future is complete, or if its local backward does
// not end as P1 says. Each call is a node that the fault plan counts: it may be slow, throw, or
// fail with an error code.
#pragma once

#include <memory>
#include <vector>

#include "properties/observe/environment.h"
#include "reducer/autograd/engine.h"
#include "reducer/autograd/parameter.h"
#include "reducer/hooks/communication_hook.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct UserHookSetup {
  reference::HookResult result = reference::HookResult::kMean;
  reference::HookCompletion completion = reference::HookCompletion::kImmediate;
  reference::HookBackward backward = reference::HookBackward::kNone;
  // Buckets of sparse gradients lie between the buckets for which the hook is called. The hook is
  // not called for the sparse ones.
  bool has_gaps = false;
  // The reducer's parameters; HookBucket::parameters() has indices into this list.
  std::vector<Ref<Parameter>> parameters;
};

// The engine and the environment must outlive the hook.
std::shared_ptr<CommunicationHook> make_user_hook(UserHookSetup setup, Engine& engine,
                                                  RankEnvironment& environment);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
