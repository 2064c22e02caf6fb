// metamorphic: the oracle that needs no model of what must come out. A case with a Switch runs
// twice, the second time with another value of an option that must not change what comes out
// (case/switched.h). All ranks must have the same gradients, bit for bit, the same state and the
// same errors in both runs.
//
// What it cannot see is whatever is wrong in the same way in both runs.
//
// The model says two things only: which gradients time decides (appendix K of the contract), and in
// which steps a program may fail, since ranks learn of an error at different times. Where it says
// that, the verdict counts what was left open (unspecified.h):
//   - an option that may change errors (Row::keeps_errors): everything from the first step on in
//     which the program itself must fail in one of the two runs;
//   - any option: the code of an error that a peer caused, and what a rank does that a peer's error
//     may reach;
//   - an error that the program does not lead to, in both runs: everything from there on.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "properties/case/case.h"
#include "properties/observe/observation.h"
#include "properties/oracle/verdict.h"
#include "reference/expectation.h"

namespace lockstep::properties {

// Why the two runs of a case are not compared at all.
enum class NotComparable : std::uint8_t {
  kNoOption,       // no option can be switched, or not the one that the case names
  kHarmfulFault,   // a fault may fail a step, and it meets the two runs at different times
  kSharedReducer,  // two reducers on one group, whose passes may end in a mismatch by time (F7)
  // Buckets are rebuilt in the order in which gradients got ready, which time may decide (B2), and
  // the bits of sums depend on it (G3).
  kLayoutByTime,
};
constexpr std::size_t kNotComparableReasons = 4;
const char* name_of(NotComparable reason);
std::optional<NotComparable> not_comparable(const Case& c);

// Judges one run of a subject without a model: its end, races and leaks.
Verdict judge_without_model(const Observation& observation);

struct TwoRuns {
  const Case& value;  // comparable
  // The model's, of the first run and of the second one.
  const reference::Expectation& expectation;
  const reference::Expectation& second_expectation;
  const Observation& first;
  const Observation& second;
  // An error is known by the call that raises it alone (Profile::judges_calls_alone).
  bool knows_calls_alone = false;
};
struct SwitchVerdict {
  Verdict verdict;
  std::uint32_t compared_steps = 0;
};
// Both runs have finished.
SwitchVerdict judge_switch(const TwoRuns& runs);

// The name of the oracle in verdicts on this case, which says what was switched: "same with views".
std::string oracle_of_switch(const Case& c);
// The name of the second run in messages: "with views = true".
std::string name_of_second_run(const Case& c);

}  // namespace lockstep::properties
