// Libraries that are wrong before they have a table to show. LOCKSTEP_EXAMPLE_FAULT says how: a
// constructor, which runs when the library is opened, or the entry point
//   1  crashes there   2  aborts   3  exits with status 0   4  loops   5  crashes in the entry
//   point
#include <signal.h>

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
    volatile bool forever = true;
    while (forever) {
    }
#endif
  }
};

const Constructed constructed;

}  // namespace

extern "C" LOCKSTEP_EXPORT const lockstep_subject* lockstep_subject_entry(uint32_t) {
  ::raise(SIGSEGV);
  return nullptr;
}
