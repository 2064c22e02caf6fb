// A program as JSON, as Python reads it: what a rank of the subject `python` trains (python_job.h),
// and what an exported script has of its case (report/python_script.h).
//
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reference/program.h"

namespace lockstep::properties {

// The factors that uses of one parameter multiply its elements with, in one step on one rank.
struct PythonConstant {
  std::string name;
  std::uint32_t owner = 0;                         // the parameter
  std::optional<std::vector<std::uint32_t>> rows;  // that a use of a sparse parameter looks up
  std::vector<double> elements;                    // row-major
};
// The elements, or of a sparse parameter an object of rows and elements.
nlohmann::json to_json(const PythonConstant& constant);

// Numbers are as JSON has them; those that it does not have are "nan", "inf" and "-inf".
nlohmann::json python_numbers(const std::vector<double>& values);

// The work of one rank in one step, which has its kind, its forwards, and its calls in order.
struct PythonStep {
  nlohmann::json work;
  std::vector<PythonConstant> constants;
};
PythonStep python_step(const reference::Program& program, std::size_t step, std::uint32_t rank);

nlohmann::json python_parameters(const reference::Program& program);

// The options, by the names that DistributedDataParallel has for them.
nlohmann::json python_options(const reference::Replicated& options);

}  // namespace lockstep::properties
