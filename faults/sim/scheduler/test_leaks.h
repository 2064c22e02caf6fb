// For tests whose runs end in a deadlock: the simulator gives its fibers up then, and what their
// stacks own is not destroyed. What is allocated while a MayLeak lives is no leak to LeakSanitizer.
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
