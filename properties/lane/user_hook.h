// A communication hook as a user may write one (contract S4): it sums a scaled copy of the bucket,
// and returns that copy, new in every pass, instead of the bucket. It fails when what it is told is
// not what S4 promises: the order of buckets and which is the last, the divisor, and views that
// cover the bucket in the strides of dense parameters. Each call is a node that the fault plan
// counts: it may take its time, or throw.
#pragma once

#include <memory>

#include "properties/lane/environment.h"
#include "reducer/hooks/communication_hook.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// `has_gaps`: buckets of sparse gradients, which it is not called for, lie between those that it
// is.
std::shared_ptr<CommunicationHook> make_user_hook(RankEnvironment& environment, bool has_gaps);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
