// load_subject(): loads a user's reducer from a shared library (lockstep_subject.h).
//
// The loader checks the library and reports any error in one line that says what to do: the file
// does not exist, is no library, has no entry point or another version of the interface, or its
// table lacks functions. The library remains loaded until the process ends. Threads: any, one call
// at a time.
#pragma once

#include <functional>
#include <string>

#include "properties/case/capabilities.h"
#include "properties/subject/lockstep_subject.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

// The capabilities for which the interface has constants. It does not support static mode, views,
// or sums in the order of the ranks yet.
constexpr Capabilities hosted_capabilities() {
  return Capabilities::from_bits((2 * LOCKSTEP_CAN_RECOVER - 1) | LOCKSTEP_CAN_ABSENT |
                                 LOCKSTEP_CAN_REPEATED_HOOKS);
}

struct LoadedSubject {
  const lockstep_subject* table = nullptr;
  Capabilities capabilities;
  std::string scale;  // as it declares it; one that declared_sums() takes
};

// `path` is a path; the loader never searches the linker's folders for it. `opened` is called after
// the library's constructors have run and before its entry point. All of these may do anything to
// this process: a program that has to survive them first tests the library in another process
// (find_subject()).
Result<LoadedSubject> load_subject(const std::string& path,
                                   const std::function<void()>& opened = {});

// Checks a table that is already loaded. `whose` names it in errors.
Result<LoadedSubject> check_subject(const lockstep_subject* table, const std::string& whose);

}  // namespace lockstep::properties
