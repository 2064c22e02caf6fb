// FailureReporter holds what this rank knows about failures: the first cause, once the reducer is
// poisoned (P12), and how far the rank had got when it failed (T1).
//
// The reducer reports a failure in this order: note() the progress, before anything is cleaned up;
// publish the flight record and the failure on the FailureBoard; stop the groups; set_poison().
//
// Threads: the thread that trains. A hook that fails only makes a Failure (training_position.h).
// Memory: a FailureReporter reserves memory for one failure, so that a reducer can always be
// poisoned, even when memory has run out.
#pragma once

#include <new>
#include <optional>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/base/status.h"
#include "reducer/flight_recorder.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class FailureReporter {
 public:
  FailureReporter() : reserve_(Failure()) {}

  // Forgets every failure, as a reset does, and reserves memory for the next one.
  void start_over();

  bool is_poisoned() const { return !poison_.ok(); }
  // The first cause; ok if the reducer is not poisoned.
  const Status& poison() const { return poison_; }
  void set_poison(Status cause) {
    LOCKSTEP_CHECK(!cause.ok());
    poison_ = std::move(cause);
  }
  // The first cause, or kOutOfMemory if there is no memory for a copy.
  Status copy_of_poison() const;
  // What a poisoned reducer answers to further work: kPoisoned, with the first cause in the text.
  Status refusal() const;
  // Makes a failure in the memory that was reserved for it.
  Status reserved(Code code, const char* detail);

  // The first failure since a pass began stays.
  void note(const ProgressSnapshot& progress, const Failure& failure);
  const std::optional<ProgressSnapshot>& failed_at() const { return failed_at_; }
  // An earlier failure that left the reducer clean is over.
  void forget_progress() { failed_at_.reset(); }

 private:
  Status poison_;
  Status reserve_;
  // The progress at the last failure, until a pass begins.
  std::optional<ProgressSnapshot> failed_at_;
};

// Runs what the handling of a failure can do without, if memory runs out.
template <class Call>
void attempt(const Call& call) {
  try {
    call();
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
