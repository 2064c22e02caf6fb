// eval: measures the power of the search. Looks for every planted bug in a number of trials, each
// with seeds of its own, and reports how many cases it took. See `lockstep eval --help`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "properties/case/case.h"

namespace lockstep::properties {

struct EvalOptions {
  std::vector<std::string> bugs;  // ids; empty: all that are planted
  std::uint64_t trials = 20;
  std::uint64_t cases = 20'000;  // the most cases of a trial
  std::uint64_t seed = 1;        // the seed of the first trial; each further trial adds one
  int jobs = 1;                  // how many trials run at once
  bool components = false;       // every component looks for each bug, and no program
  double shrink_seconds = 0;     // to make each case small that found its bug; 0: none is
  // The policy of every schedule. Without a value, cases draw a policy.
  std::optional<Schedule::Policy> policy;
  std::string log = "lockstep-out/eval.jsonl";
  std::string json;
  std::string html;
  std::vector<std::string> compare;  // two logs, to be compared in place of measuring
};

// Trials that the log has already are not run again, so an interrupted evaluation goes on. Returns
// 0 if every trial found its bug, 2 if one did not, or could not be decided, and 130 after Ctrl-C.
int run_eval(const EvalOptions& options);

}  // namespace lockstep::properties
