// The rows of a matrix for generated cases: what a case has, as people choose a reducer by it. A
// case belongs to every row that names something that it has.
//
// Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "properties/case/case.h"

namespace lockstep::properties {

std::vector<std::string> generated_rows();  // the labels, in the order in which they are shown
std::vector<std::size_t> generated_rows_of(const Case& value);  // requires a normalized case

}  // namespace lockstep::properties
