// judge(): the oracles. It compares what a run did with what the contract says must come out, and
// finds the first thing wrong.
//
// In this order: progress (deadlock, livelock, crash, hang), races on a GPU, errors (missing,
// unexpected, wrongly named), reuse after reset, equal bits on all ranks, bits against the model,
// defined and undefined, untouched storage, the trace of collectives (each bucket once, ascending,
// counts and dtypes), what the ranks tell of a failure, leaks.
//
// What is right depends on what went wrong: an error is justified only by the program itself
// (Expectation), or by a fault of the plan that fired, is not benign, and lies in that step or an
// earlier one.
#pragma once

#include "properties/case/case.h"
#include "properties/lane/observation.h"
#include "properties/oracle/verdict.h"
#include "reference/contract.h"
#include "reference/expectation.h"

namespace lockstep::properties {

// `expectation` is the model's for the case and for observation.recoveries, by `contract`. Of a
// subject that works hook by hook (contract.h) an error must come in the call where it is expected;
// what it names is its own affair.
Verdict judge(const Case& c, const reference::Contract& contract,
              const reference::Expectation& expectation, const Observation& observation);
inline Verdict judge(const Case& c, const reference::Expectation& expectation,
                     const Observation& observation) {
  return judge(c, reference::Contract::lockstep(), expectation, observation);
}

}  // namespace lockstep::properties
