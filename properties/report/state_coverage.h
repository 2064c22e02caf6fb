// StateCoverage: in which states of the reducer the faults of a run acted (faults/reducer_state.h),
// as a table of kinds of faults and states. A cell that cannot occur is declared so, with the
// reason, in state_coverage.cc; a fault that acts there all the same is an error of the
// declaration, or of what it relies on.
//
// Pure functions; threads: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "faults/plan.h"
#include "properties/generate/generate.h"
#include "properties/oracle/verdict.h"

namespace lockstep::properties {

struct StateCoverage {
  FaultKinds kinds;  // that the cases can have; the rows of the table
  faults::StateCounts counts{};

  bool empty() const { return kinds.empty(); }
};

// Returns why a fault of this kind cannot act in this state; empty if it can.
std::string_view why_impossible(faults::Kind kind, faults::ReducerState state);

// Returns the verdict itself; or, if it is "ok" and a fault acted in a state that is declared
// impossible, an inconclusive one that says so.
Verdict judge_states(Verdict verdict, const faults::StateCounts& counts);

// Returns the cells that can occur and did not, such as "link_reset while armed".
std::vector<std::string> empty_cells(const StateCoverage& coverage);

// A line for the summary of a run; empty without kinds.
std::string states_line(const StateCoverage& coverage);

// The rows of the table, each with as many cells as there are states and one for the kind: a
// number, "-" for a cell that cannot occur, and "!0" for one that can and did not.
std::vector<std::vector<std::string>> state_rows(const StateCoverage& coverage);
std::vector<std::string> state_headers();
// The table as text, and below it why the cells with "-" cannot occur.
std::string states_block(const StateCoverage& coverage);

}  // namespace lockstep::properties
