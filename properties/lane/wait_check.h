// WaitCheck: whether whoever waits for a collective learns how it ended, and when it is over
// (reducer/comm/process_group.h). Chance makes groups that go on for a while and then end their
// collective, or stop for ever; and failures of which a group has to say where they arose.
//
// Threads: any fiber; it takes virtual time.
#pragma once

#include <cstdint>
#include <string>

#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Waits behind groups that `key` determines. A caller gets the collective's own result as soon as
// it is there; it does not give up while the groups go on, and gives up some time after they have
// stopped (F1). Returns a sentence about the first wrong answer; empty if there is none.
std::string wrongly_waited(std::uint32_t key);

// The same of what a failure says about the collective in which it arose, and about the rank that
// has aborted its group for it (F2, F5, F7).
std::string wrongly_named(std::uint32_t key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
