// Agreement: two subjects that ran one case must have the same gradients, bit for bit, whatever a
// model says of them. It compares the leading steps for which both contracts expect the same result
// and no error; beyond those steps the subjects are meant to differ.
//
// These are pure functions of their arguments.
#pragma once

#include <cstdint>
#include <string>

#include "properties/case/case.h"
#include "properties/observe/observation.h"
#include "properties/oracle/verdict.h"
#include "properties/subject/expected.h"

namespace lockstep::properties {

struct Comparable {
  std::uint32_t steps = 0;
  bool has_synced_pass = false;  // among these steps; without one there is nothing to compare
  std::string why;               // why the next step is not comparable; empty if all steps are
};

// Both expectations are for `program`, each under the contract of its subject.
Comparable comparable_steps(const reference::Program& program, const Expected& one,
                            const Expected& other);

struct Side {
  std::string name;  // the subject's name
  const reference::Expectation& expectation;
  const Observation& observation;
};

// Compares the first `steps` steps: which ranks failed, which gradients are defined, and their
// bits. Both runs must have finished.
Verdict judge_agreement(const Case& c, std::uint32_t steps, const Side& one, const Side& other);

}  // namespace lockstep::properties
