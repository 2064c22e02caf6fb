// fuzz: generate cases, run them, and make the first failure small. See `lockstep fuzz --help`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "properties/generate/generate.h"
#include "properties/lane/lane.h"
#include "properties/report/failure_report.h"

namespace lockstep::properties {

struct FuzzOptions {
  std::vector<LaneKind> lanes = {LaneKind::kSim};
  Subject subject;
  double seconds = 60;      // of all lanes together; ignored where `cases` is given
  std::uint64_t cases = 0;  // of each lane
  std::uint64_t seed = 1;
  int jobs = 0;  // 0: as many as suit the lane
  GenerateOptions generate;
  bool keep_going = false;  // after a failure: look for others that differ
  double shrink_seconds = 20;
  std::string out = "lockstep-out";
  std::string json;
  std::string junit;
  std::string program;  // how the user called us, for the replay command
};

// What cases of this lane are generated with.
GenerateOptions generate_options_of(const FuzzOptions& options, LaneKind lane);

// The exit code: 0, the first failure's, 130 after Ctrl-C. A case that is in flight when the time
// is over has its limit (time_limit.h), and the run waits for it. One that Ctrl-C cut off is named,
// and the run is inconclusive, as it is where the machine lacks what a lane needs (needs.h).
int run_fuzz(const FuzzOptions& options);

// Makes a failing case small, and tells what does not matter about it. `outcome` is the failing
// run's.
struct Shrunk {
  Case value;
  Outcome outcome;
  std::uint64_t executions = 0;
  std::vector<std::string> irrelevant;
  bool reproduced = true;  // false: the failure did not show again, and nothing was made smaller
};
Shrunk shrink_failure(const Case& value, const Outcome& outcome, LaneKind lane,
                      const Subject& subject, double seconds);

extern const char* const kCommit;  // of this build

}  // namespace lockstep::properties
