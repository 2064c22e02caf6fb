// A communication hook such as a user may write (S4). It reduces a scaled copy of the bucket and
// returns that copy, new in every pass, instead of the bucket. It fails if its arguments are not
// what S4 promises: the order of buckets, which one is the last, the divisor, and views that cover
// the bucket in the strides of dense parameters. Each call is a node that the fault plan counts: it
// may be slow, or throw.
#pragma once

#include <memory>

#include "properties/observe/environment.h"
#include "reducer/hooks/communication_hook.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// `has_gaps`: buckets of sparse gradients lie between the buckets for which the hook is called. The
// hook is not called for the sparse ones.
std::shared_ptr<CommunicationHook> make_user_hook(RankEnvironment& environment, bool has_gaps);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
