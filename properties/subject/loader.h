// load_subject(): a user's reducer from a shared library (lockstep_subject.h).
//
// What is wrong with a library is found here, and told in one line that says what to do: no such
// file, not a library, no entry point, another version of the interface, a table with holes. The
// library stays loaded until the process ends. Threads: any, one call at a time.
#pragma once

#include <functional>
#include <string>

#include "properties/subject/capabilities.h"
#include "properties/subject/lockstep_subject.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

// Those that the interface has constants for. What it has no means for yet: static mode, views,
// sums in the order of the ranks.
constexpr Capabilities hosted_capabilities() {
  return Capabilities::from_bits(2 * LOCKSTEP_CAN_RECOVER - 1);
}

struct LoadedSubject {
  const lockstep_subject* table = nullptr;
  Capabilities capabilities;
};

// `path` is taken as a path, never looked up in the linker's folders. `opened` is called when the
// library's constructors have run, before its entry point is. All of these may do anything to this
// process: a program that has to outlive them asks another one first (find_subject()).
Result<LoadedSubject> load_subject(const std::string& path,
                                   const std::function<void()>& opened = {});

// The same for a table at hand. `whose` names it in errors.
Result<LoadedSubject> check_subject(const lockstep_subject* table, const std::string& whose);

}  // namespace lockstep::properties
