// Pages of benchmarks: of one run, of several runs over commits, and of NCCL libraries side by
// side.
//
// Pure functions; any thread. Failure: results that cannot be compared, in one line; see also
// Page::html().
#pragma once

#include <string>
#include <vector>

#include "properties/compare/benchmark_results.h"
#include "properties/compare/results.h"

namespace lockstep::properties {

Result<std::string> benchmark_page(const BenchmarkResults& results);

// The ratios over the commits of the runs, in the order of the runs; where a benchmark has no
// ratios, its times divided by those of the first run. Refuses runs of two machines or of two
// benchmarks.
struct NamedRun {
  std::string file;
  BenchmarkResults results;
};
Result<std::string> history_page(const std::vector<NamedRun>& runs);

// `limit` is 0.02 for 2 %.
Result<std::string> comparison_page(const ComparisonResults& results, double limit);

}  // namespace lockstep::properties
