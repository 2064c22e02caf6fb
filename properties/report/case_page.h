// A page for one run of a case: the program in English, a column for each rank with its steps and
// collectives, the faults shaded, the first difference marked, and the command that replays the
// case.
//
// A pure function. Failure: see Page::html().
#pragma once

#include <string>

#include "properties/report/failure_report.h"

namespace lockstep::properties {

// `report.outcome` has events (outcome_of). The run may have passed.
Result<std::string> case_page(const FailureReport& report);

}  // namespace lockstep::properties
