// ExpectedErrors: the steps of a program in which some rank must return an error according to the
// model, also after recoveries. The ranks of one process share it, so that the model runs once for
// all of them.
//
// Threads: any. Ownership: it refers to the program and the expectation, which must outlive it.
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
  // `expectation` must be without recoveries.
  ExpectedErrors(const reference::Program& program, const reference::Expectation& expectation)
      : program_(program), expectation_(expectation) {}

  // Returns a bit for each step. After a recovery static mode counts its passes anew, and a join
  // begins anew; otherwise the same steps end in errors as before.
  std::vector<bool> after(const std::vector<reference::Recovery>& recoveries);

 private:
  struct Known {
    std::vector<reference::Recovery> recoveries;
    std::vector<bool> errors;
  };

  const reference::Program& program_;
  const reference::Expectation& expectation_;
  // This is not the platform's mutex, because nothing that depends on a schedule happens under it.
  std::mutex mutex_;
  std::deque<Known> known_;
};

}  // namespace lockstep::properties
