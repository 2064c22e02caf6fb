// PassStatistics says where the time of one synced pass went on this rank (contract T3). The
// reducer always records it for the last pass that was completed. The cost is one reading of the
// clock for each parameter, and three for each bucket.
//
// Times count from the moment when the pass was armed, which is the end of its last forward. They
// include local backwards and the user's own work in between. This is a value; see
// Reducer::last_pass().
#pragma once

#include <cstdint>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct PassStatistics {
  struct Bucket {
    platform::Duration ready{};  // When the last member became ready.
    // When the sum, or the communication hook, was started. 0, as `completed`, where the bucket was
    // not sent (skip_unused_buckets).
    platform::Duration launched{};
    // When the sum, or the result of the communication hook, was complete.
    platform::Duration completed{};
  };
  std::int64_t pass = kNone;   // kNone if no pass was completed in this group.
  platform::Duration armed{};  // On the platform's clock.
  // One entry for each parameter: when it was ready, or marked unused. 0 for a frozen one.
  std::vector<platform::Duration> gradients;
  std::vector<Bucket> buckets;
  platform::Duration backward_ended{};  // When the last backward of the pass ended.
  platform::Duration finished{};        // When all gradients held their results.

  // The cost of communication that no backward hid.
  platform::Duration exposed() const { return finished - backward_ended; }
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
