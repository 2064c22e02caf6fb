// A page for a fuzz run: cases and features over time, which features met which faults, and the
// failures.
//
// A pure function. Failure: see Page::html().
#pragma once

#include <string>

#include "properties/report/failure_report.h"

namespace lockstep::properties {

Result<std::string> run_page(const RunReport& report);

}  // namespace lockstep::properties
