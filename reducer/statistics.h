// PassStatistics: where the time of one synced pass went on this rank (contract T3). Always kept,
// of the last pass that was completed: one look at the clock for each parameter, and three a
// bucket.
//
// Times are since the pass was armed, which is when its last forward ended; local backwards and the
// user's own work in between count. A value; see Reducer::last_pass().
#pragma once

#include <cstdint>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct PassStatistics {
  struct Bucket {
    platform::Duration ready{};      // its last member was there
    platform::Duration launched{};   // its sum, or its communication hook, was started
    platform::Duration completed{};  // the sum was there; with a hook: its result was
  };
  std::int64_t pass = kNone;                  // kNone: none was completed in this group
  std::vector<platform::Duration> gradients;  // by parameter: ready, or marked unused. 0: frozen
  std::vector<Bucket> buckets;
  platform::Duration backward_ended{};  // the last backward of the pass
  platform::Duration finished{};        // all gradients were in place

  // What communication cost that no backward hid.
  platform::Duration exposed() const { return finished - backward_ended; }
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
