// Agreement: two subjects that ran one case must have come to the same gradients, bit for bit,
// whatever a model says of them. What is looked at are the leading steps of which both contracts
// expect the same, and no error: beyond them the subjects are meant to differ.
//
// Pure functions of their arguments.
#pragma once

#include <cstdint>
#include <string>

#include "properties/case/case.h"
#include "properties/lane/observation.h"
#include "properties/oracle/verdict.h"
#include "reference/expectation.h"

namespace lockstep::properties {

struct Comparable {
  std::uint32_t steps = 0;
  bool has_synced_pass = false;  // among them; without one there is nothing to compare
  std::string why;               // not the next one; empty: these are all
};

// Both expectations are of `program`, by the contracts of the two.
Comparable comparable_steps(const reference::Program& program, const reference::Expectation& one,
                            const reference::Expectation& other);

struct Side {
  std::string name;  // of the subject
  const reference::Expectation& expectation;
  const Observation& observation;
};

// Compares the first `steps` steps: who failed, which gradients are defined, their bits. Both have
// come to an end.
Verdict judge_agreement(const Case& c, std::uint32_t steps, const Side& one, const Side& other);

}  // namespace lockstep::properties
