// A page for a fuzz run: cases and features over time, which features met which faults, and the
// failures.
//
// A pure function. Failure: see Page::html().
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "properties/report/failure_report.h"

namespace lockstep::properties {

Result<std::string> run_page(const RunReport& report);

// A chart with a lying bar for each pair of a label and a value, for Page::add_chart().
std::string bars_config(const std::vector<std::pair<std::string, double>>& bars,
                        const std::string& what, const nlohmann::ordered_json& axis);

}  // namespace lockstep::properties
