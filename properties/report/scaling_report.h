// The report on how the reducer's traffic grows with the number of ranks
// (properties/lane/scaling.h): a text table, JSON, and a page. These are pure functions of the
// points of all jobs, in ascending order of ranks.
#pragma once

#include <string>
#include <vector>

#include "properties/lane/scaling.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

using ScalingPoints = std::vector<scaling::Point>;

std::string scaling_text(const ScalingPoints& points);
std::string scaling_json(const ScalingPoints& points, const std::string& commit);
Result<std::string> scaling_page(const ScalingPoints& points, const std::string& commit);

}  // namespace lockstep::properties
