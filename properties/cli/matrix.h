// matrix: runs kept and generated cases on several subjects, and says how each subject fares with
// each group of cases. See `lockstep matrix --help` and report/matrix.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/cli/case_pool.h"
#include "properties/generate/fault_phases.h"

namespace lockstep::properties {

struct MatrixOptions {
  std::vector<PoolStation> columns;  // the subjects, each with its lane
  std::uint64_t cases = 0;           // that are generated; 0: as many as the command usually has
  std::uint64_t seed = 1;
  // Faults in each phase of training, instead of kept and generated cases; then `cases` is how many
  // cases each cell has. Without a kind: no such faults.
  PhaseOptions phases = {{}, {2, 3, 8}};
  int jobs = 0;  // 0: as many as suit the lanes
  // The kept cases: *.json, also in folders below; those in its folder `torch` are findings.
  // "none": no kept cases.
  std::string corpus = "properties/corpus";
  bool is_interleaved = false;       // GenerateOptions::is_interleaved
  std::string out = "lockstep-out";  // for generated cases that fail
  std::string markdown;
  std::string json;
  std::string html;
  std::string program;
  std::string command;  // the whole, for the reports
};

// Chooses the cases: those of these kinds of faults in each phase, with commas between them or
// `all`; or, if the text is empty, kept and generated ones. Returns an error for what it does not
// know.
Status choose_cases(const std::string& faults, MatrixOptions& options);

// Returns 0 if every case ran, whatever its result, but with faults the exit code of the first
// subject's worst failure; 2 if some runs proved nothing; 130 after Ctrl-C, with the results up to
// then in all reports.
int run_matrix(const MatrixOptions& options);

}  // namespace lockstep::properties
