// virtual_sleep() lets the calling fiber pause for a span of virtual time.
#pragma once

#include "faults/sim/scheduler/scheduler.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

inline void virtual_sleep(platform::Duration span) {
  simulation::Scheduler* const scheduler = simulation::Scheduler::running();
  scheduler->sleep_until(scheduler->now() + span);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
