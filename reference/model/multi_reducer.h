// Several reducers, or several groups of ranks (F7): each reducer in each group is modelled as if
// it were alone. Ranks alone tie them: a rank leaves a step when one of its calls raises. Pure; any
// thread; nothing fails.
#pragma once

#include <cstdint>

#include "reference/expectation.h"
#include "reference/program.h"

namespace lockstep::reference {

// Fills in all of `expectation` but its shares, from these.
void merge_expectations(const Program& program, Expectation& expectation);

}  // namespace lockstep::reference
