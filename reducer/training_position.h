// TrainingPosition says where a rank is in its training, in the words of a Failure. The functions
// here make a failure at that position, and complete failures that come from elsewhere.
// Threads: these are values and functions of values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reducer/base/build_namespace.h"
#include "reducer/base/status.h"
#include "reducer/bucket/layout.h"
#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Where a rank is in its training. The layout and the parameters must outlive it.
struct TrainingPosition {
  int rank = kNone;
  int size = 0;
  std::int64_t reducer_id = kNone;
  std::int64_t pass = kNone;  // kNone if no pass is open, or none of its backwards has begun.
  std::int64_t next_pass = 0;
  const Layout& layout;
  const std::vector<ParameterInfo>& parameters;
};

// Makes a failure that arose on this rank.
Failure describe(const TrainingPosition& position, Code code, std::string detail);
// A user's argument to abort(), or the failure of another group with other ranks that ended a
// backward (F7), may name a rank that this group does not have. It is replaced by this rank.
void keep_to_group(int rank, int size, Failure& failure);
// Makes a failure of the process group the report of this rank, which names ranks of the group.
void seen_by(int rank, int size, Failure& failure);
// Names the parameters of the failure's bucket, if it names none and the bucket is one of this
// reducer; another reducer on the group may have started the collective (F7).
void name_parameters(const TrainingPosition& position, Failure& failure);
// Adds what the reducer knows to a failure of the process group in a collective of `bucket`, which
// may be kNone. A group that has failed names the collective that failed first: where that is one
// without a bucket, such as the sum of a usage map, or an agreement, `bucket` is not what failed.
void annotate(const TrainingPosition& position, Failure& failure, int bucket);
// Completes a failure that this rank raises: who reports it, and the pass. If it names no rank and
// is not the group's, it arose here. Then it is a known cause, unless it is a timeout, or the
// refusal of a reducer that has failed before. It allocates nothing.
void complete(const TrainingPosition& position, Failure& failure);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
