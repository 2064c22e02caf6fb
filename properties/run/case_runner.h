// CaseRunner: runs one case, from the model to the verdict, in one call. With Subject::against it
// runs the case twice, on either subject, and first compares the results of the two. A case with a
// Switch runs twice, too, and only the results of the two runs are compared (oracle/metamorphic.h).
// Threads: one caller. It reuses its memory between cases.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "properties/lane/lane.h"
#include "properties/oracle/verdict.h"
#include "reference/model.h"

namespace lockstep::properties {

class CaseRunner {
 public:
  CaseRunner(LaneKind kind, const Subject& subject);

  // Runs only the steps of the program of which the model of the subject's profile can tell what
  // comes out, and with another subject only those for which both contracts expect the same.
  // Inconclusive (oracle "comparable") if no step is left to compare.
  Verdict run(const Case& c);
  // Runs the case twice; a different trace is a failure of its own (sim lane).
  Verdict run_twice(const Case& c);

  // Takes effect with the next run: see Observation::detailed.
  void set_detailed(bool detailed) { observation_.detailed = detailed; }

  LaneKind kind() const { return kind_; }
  // Of the last case; if it ran twice, of the first run.
  const Observation& observation() const { return observation_; }
  // With another subject, or a switch: returns the steps of the last case that were compared.
  std::uint32_t compared_steps() const { return compared_steps_; }

 private:
  Verdict run_modelled(const Case& c);
  Verdict run_unless_starved(const Case& c);
  Verdict run_once(const Case& c);
  void observe(const Case& c, reference::Expectation& expectation, Observation& observation);
  Verdict run_switched(const Case& c);
  Verdict run_beside(const Case& c);
  Verdict compare(const Case& c, Verdict mine, Verdict theirs);

  LaneKind kind_;
  const std::string name_;
  const Profile profile_;
  const bool attaches_;  // see Observation
  std::unique_ptr<Lane> lane_;
  reference::Expectation expectation_;
  Observation observation_;
  Observation second_;                 // of a case with a switch
  bool was_starved_ = false;           // in any run of the case
  std::unique_ptr<CaseRunner> other_;  // with Subject::against
  std::uint32_t compared_steps_ = 0;
};

}  // namespace lockstep::properties
