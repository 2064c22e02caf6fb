// ExpectedErrors: the steps of a program in which some rank must come to an error, as the model has
// it, also after recoveries. The ranks of one process share it, so that the model runs once for all
// of them.
//
// Threads: any. Ownership: keeps the program and the expectation by reference.
#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "reference/expectation.h"
#include "reference/model.h"
#include "reference/program.h"

namespace lockstep::properties {

class ExpectedErrors {
 public:
  // `expectation`: without recoveries.
  ExpectedErrors(const reference::Program& program, const reference::Expectation& expectation)
      : program_(program), expectation_(expectation) {}

  // A bit for each step. After a recovery static mode counts its passes anew, and a join begins
  // anew; else the same steps end in errors as before.
  std::vector<bool> after(const std::vector<reference::Recovery>& recoveries);

 private:
  struct Known {
    std::vector<reference::Recovery> recoveries;
    std::vector<bool> errors;
  };

  const reference::Program& program_;
  const reference::Expectation& expectation_;
  std::mutex mutex_;  // not the platform's: nothing that a schedule has a part in happens under it
  std::deque<Known> known_;
};

}  // namespace lockstep::properties
