// The commands that work on one case or a folder of cases. Each returns the program's exit code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "properties/generate/generate.h"
#include "properties/lane/lane.h"

namespace lockstep::properties {

struct ReplayOptions {
  std::string case_file;
  LaneKind lane = LaneKind::kSim;
  Subject subject;
  std::string trace;         // a file for Chrome's trace format
  std::string json;          // a file for a report
  std::string html;          // a file for a page
  bool expect_fail = false;  // the command succeeds if the case fails
  bool in_process = false;   // run the case in this process, for a debugger
  std::string program;
};
int run_replay(const ReplayOptions& options);

struct ShrinkCommandOptions {
  std::string case_file;
  LaneKind lane = LaneKind::kSim;
  Subject subject;
  double budget_seconds = 60;
  std::string program;
  std::string html;  // empty: no page
};
int run_shrink(const ShrinkCommandOptions& options);  // writes CASE.min.json beside the case

// Writes the case that `fuzz` with the same options runs at this index of the seed.
struct GenerateCommandOptions {
  std::uint64_t seed = 1;
  std::uint64_t index = 0;
  LaneKind lane = LaneKind::kSim;
  GenerateOptions generate;
  std::string output;  // empty: standard output
};
int run_generate(const GenerateCommandOptions& options);

int run_show(const std::string& case_file);

// Joins the flight records (reducer/diagnosis) that the ranks of a job wrote. Returns 0 if nothing
// is wrong, and kRanksDiffer if there is something to report.
constexpr int kRanksDiffer = 72;
int run_diagnose(const std::vector<std::string>& flight_record_files);

}  // namespace lockstep::properties
