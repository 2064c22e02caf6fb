// Shares: what several reducers, or groups of ranks, come to together (F7). Each share is modelled
// by itself, as if it were alone; ranks alone tie them, which leave a step when one of its calls
// raises. One thread; nothing fails.
#pragma once

#include "reference/expectation.h"
#include "reference/program.h"

namespace lockstep::reference {

// Fills in all of `out` but its shares, from these.
void merge_expectations(const Program& program, Expectation& out);

}  // namespace lockstep::reference
