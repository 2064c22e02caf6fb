// CaseRunner: one case from the model to the verdict: the whole way of the data in one call.
// Threads: one caller. Keeps its memory between cases.
#pragma once

#include <memory>

#include "properties/lane/lane.h"
#include "properties/oracle/verdict.h"
#include "reference/model.h"

namespace lockstep::properties {

class CaseRunner {
 public:
  CaseRunner(LaneKind kind, const Subject& subject)
      : kind_(kind), contract_(subject.contract), lane_(make_lane(kind, subject)) {}

  // Of a program only the steps that the subject's contract tells something about (torch_model.h).
  Verdict run(const Case& c);
  // Runs it twice; not the same trace is a failure of its own (sim lane).
  Verdict run_twice(const Case& c);

  // From the next run on: see Observation::detailed.
  void set_detailed(bool detailed) { observation_.detailed = detailed; }

  LaneKind kind() const { return kind_; }
  const Observation& observation() const { return observation_; }

 private:
  Verdict run_modelled(const Case& c);

  LaneKind kind_;
  const reference::Contract contract_;
  std::unique_ptr<Lane> lane_;
  reference::Expectation expectation_;
  Observation observation_;
};

}  // namespace lockstep::properties
