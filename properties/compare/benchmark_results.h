// The results of any of our benchmarks, read from the JSON file that ci/bench wrote: its figures,
// with ratios and intervals where it compares something.
//
//   reducer   a step's time beside the flat all-reduce of the same run, or a first one beside a
//   later one torch     a step's time beside that of PyTorch's reducer hooks     processor times,
//   without a ratio (Google Benchmark's file) nccl      each library's times beside those of the
//   library before it
//
// Pure functions; any thread. Failure: one line for a text that is not whole, or that no benchmark
// of ours wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "properties/compare/results.h"
#include "properties/compare/statistics.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

struct Figure {
  std::string group;  // of figures that stand beside each other: "resnet50, 2 ranks"
  std::string name;   // "copying"
  double value = 0;   // a median
  std::string unit;   // "ms"
  std::string base;   // what the ratio is to; empty without one
  std::optional<Ratio> ratio;
  std::optional<std::uint64_t> wrong;  // elements
};

struct BenchmarkResults {
  std::string benchmark;  // "reducer"
  std::string commit;     // empty if the file does not say
  Machine machine;
  std::vector<Figure> figures;
};

Result<BenchmarkResults> benchmark_from_json(const std::string& text);

}  // namespace lockstep::properties
