// judge(): runs the oracles. It compares what a run did with what the contract requires, and
// returns the first failure.
//
// The order is: progress (deadlock, livelock, crash, hang), races on a GPU, refusals of a
// construction or a reset, errors (missing,
// unexpected, wrongly named), reuse after reset, equal bits on all ranks, bits against the model,
// defined and undefined gradients, untouched storage, the trace of collectives (each bucket once,
// ascending, counts and dtypes), what the ranks report about a failure, leaks.
//
// What is right depends on what failed: an error is justified only by the program itself
// (Expected), or by a fault of the plan that fired, is not benign, and lies in that step or an
// earlier one.
#pragma once

#include "properties/case/case.h"
#include "properties/observe/observation.h"
#include "properties/oracle/verdict.h"
#include "properties/subject/profile.h"

namespace lockstep::properties {

// `expectation` is the model's for the case and for observation.recoveries, under `profile`. Under
// that of PyTorch a subject must return an error in the call where it is expected; the error may
// name anything.
Verdict judge(const Case& c, const Profile& profile, const Expected& expectation,
              const Observation& observation);
inline Verdict judge(const Case& c, const Expected& expectation, const Observation& observation) {
  return judge(c, Profile::lockstep(), expectation, observation);
}

}  // namespace lockstep::properties
