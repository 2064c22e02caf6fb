// The commands that work on one case or a folder of cases. Each returns the program's exit code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "properties/lane/lane.h"

namespace lockstep::properties {

struct ReplayOptions {
  std::string case_file;
  LaneKind lane = LaneKind::kSim;
  Subject subject;
  std::string trace;         // a file for Chrome's trace format
  bool expect_fail = false;  // success is that it fails
  std::string program;
};
int run_replay(const ReplayOptions& options);

struct ShrinkCommandOptions {
  std::string case_file;
  LaneKind lane = LaneKind::kSim;
  Subject subject;
  double budget_seconds = 60;
  std::string program;
};
int run_shrink(const ShrinkCommandOptions& options);  // writes CASE.min.json beside the case

int run_show(const std::string& case_file);

// Joins the accounts (reducer/diagnosis) that ranks of a job wrote. 0 if all is well, kRanksDiffer
// if there is something to tell.
constexpr int kRanksDiffer = 72;
int run_diagnose(const std::vector<std::string>& account_files);

// Runs every *.json of the folder on the production reducer, in the sim lane and on Gloo; all must
// pass.
int run_corpus_check(const std::string& folder);

}  // namespace lockstep::properties
