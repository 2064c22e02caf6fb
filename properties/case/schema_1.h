// Schema 1 of case files had no environment, no rank of PowerSGD and no variant of a disagreement:
// bits of the program's key chose them. take_choices_from_key() gives a case that was read from
// such a file what they chose, so that it runs as it always has. Pure functions; any thread.
#pragma once

#include "properties/case/case.h"

namespace lockstep::properties {

// The case is normalized, before and after.
void take_choices_from_key(Case& value);

}  // namespace lockstep::properties
