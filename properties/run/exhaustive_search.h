// ExhaustiveSearch: runs one small case in the sim lane in every order of its steps that can matter
// (faults/sim/explore/explorer.h), and judges every execution with all oracles.
//
// Some executions, one in kReorderedEvery, are run a second time in another order of their
// independent steps. The steps and the observation must be the same; otherwise the search is not
// complete, because it relies on that.
//
// Threads: one caller. Failure: refuse() says in one line why a case is not for this search.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "faults/sim/explore/explorer.h"
#include "properties/run/case_runner.h"

namespace lockstep::properties {

class ExhaustiveSearch {
 public:
  static constexpr std::uint64_t kReorderedEvery = 16;

  // The schedule of the case is ignored.
  ExhaustiveSearch(Case value, const Subject& subject);

  // Returns why the search does not know the independence of steps of such a case, or "".
  static std::string refuse(const Case& value);

  // Returns an estimate of the number of executions, from random ones. Before the first
  // execution.
  double estimate(int probes);

  // Runs the next execution. Returns its verdict.
  Verdict run();
  bool is_over() const { return is_over_; }
  const Observation& observation() const { return runner_.observation(); }

  const simulation::Explorer& explorer() const { return explorer_; }
  void restore(simulation::Explorer::State state);
  void tell_deviations(std::function<void(simulation::Deviation)> tell) {
    explorer_.tell_deviations(std::move(tell));
  }

 private:
  Case value_;
  CaseRunner runner_;
  simulation::Explorer explorer_;
  bool is_over_ = false;
};

// The state of a search as a line of JSON, and back.
std::string to_log_line(const simulation::Explorer::State& state);
Result<simulation::Explorer::State> state_from_log_line(const std::string& line);

}  // namespace lockstep::properties
