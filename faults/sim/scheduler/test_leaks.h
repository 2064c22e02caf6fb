// For tests whose runs end in a deadlock: the simulator then abandons its fibers, and what their
// stacks own is not destroyed. LeakSanitizer ignores what is allocated while a MayLeak lives.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace lockstep::simulation {

#if defined(__SANITIZE_ADDRESS__)
using MayLeak = __lsan::ScopedDisabler;
#else
struct MayLeak {
  MayLeak() {}
  ~MayLeak() {}
};
#endif

}  // namespace lockstep::simulation
