// Libraries that fail before they return a table. LOCKSTEP_EXAMPLE_FAULT selects the fault of the
// constructor, which runs when the library is opened, or of the entry point:
//  1  the constructor crashes
//  2  it aborts
//  3  it exits with status 0
//  4  it loops
//  5  the entry point crashes
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "lockstep_subject.h"

namespace {

struct Constructed {
  Constructed() {
#if LOCKSTEP_EXAMPLE_FAULT == 1
    ::raise(SIGSEGV);
#elif LOCKSTEP_EXAMPLE_FAULT == 2
    std::abort();
#elif LOCKSTEP_EXAMPLE_FAULT == 3
    std::exit(0);
#elif LOCKSTEP_EXAMPLE_FAULT == 4
    // It sleeps meanwhile, as the tests beside it need the processor that it would keep busy.
    for (;;) ::usleep(1000);
#endif
  }
};

const Constructed constructed;

}  // namespace

extern "C" LOCKSTEP_EXPORT const lockstep_subject* lockstep_subject_entry(uint32_t) {
  ::raise(SIGSEGV);
  return nullptr;
}
