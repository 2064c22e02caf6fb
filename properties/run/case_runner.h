// CaseRunner: runs one case, from the model to the verdict, in one call. With Subject::against it
// runs the case twice, on either subject, and first compares the results of the two. A case with a
// Switch runs twice, too, and only the results of the two runs are compared (oracle/metamorphic.h).
// Threads: one caller. It reuses its memory between cases.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "properties/lane/lane.h"
#include "properties/oracle/verdict.h"
#include "reference/model.h"

namespace lockstep::properties {

class CaseRunner {
 public:
  CaseRunner(LaneKind kind, const Subject& subject);
  // With a lane of the caller's, for tests.
  CaseRunner(LaneKind kind, const Subject& subject, std::unique_ptr<Lane> lane);

  // Runs only the steps of the program of which the model of the subject's profile can tell what
  // comes out, and with another subject only those for which both contracts expect the same.
  // Inconclusive (oracle "comparable") if no step is left to compare.
  Verdict run(const Case& c);
  // Runs the case twice; a different trace is a failure of its own (sim lane).
  Verdict run_twice(const Case& c);

  // Is called whenever a case begins anew (rerun.h), so that its time limit can, too.
  void set_on_rerun(std::function<void()> on_rerun) {
    if (other_) other_->set_on_rerun(on_rerun);
    on_rerun_ = std::move(on_rerun);
  }
  // Takes effect with the next run: see Observation::detailed.
  void set_detailed(bool detailed) { observation_.detailed = detailed; }

  LaneKind kind() const { return kind_; }
  // Of the last case; if it ran twice, of the first run.
  const Observation& observation() const { return observation_; }
  const Expected& expectation() const { return expectation_; }  // of the same run
  // With another subject, or a switch: returns the steps of the last case that were compared.
  std::uint32_t compared_steps() const { return compared_steps_; }
  // Returns how often the last case ran again, as its ranks had waited for a processor (rerun.h).
  std::uint32_t reruns() const { return reruns_; }

 private:
  Verdict run_modelled(const Case& c);
  Verdict run_until_judged(const Case& c);
  Verdict run_once(const Case& c);
  void observe(const Case& c, Expected& expectation, Observation& observation);
  bool is_due_for_growth(const Case& c);
  Verdict judge_growth(const Case& c);
  Verdict run_switched(const Case& c);
  Verdict run_beside(const Case& c);
  Verdict compare(const Case& c, Verdict mine, Verdict theirs);

  LaneKind kind_;
  const Subject subject_;
  const bool attaches_;  // see Observation
  std::unique_ptr<Lane> lane_;
  Expected expectation_;
  Observation observation_;
  Observation second_;                 // of a case with a switch, or of one that runs again
  double waited_s_ = 0;                // Observation::waited_s of the last run, or of both
  bool was_starved_ = false;           // likewise, Lane::was_starved()
  std::uint32_t reruns_ = 0;           // of the last case
  std::function<void()> on_rerun_;     // may be empty
  std::unique_ptr<CaseRunner> other_;  // with Subject::against
  std::uint32_t compared_steps_ = 0;
  std::uint32_t judged_growth_ = 0;  // cases that might have been judged by growth
  bool leaks_ = false;               // the subject, in a case of this runner
};

}  // namespace lockstep::properties
