// Outcomes: what each rank of a run may do, by step: the one function from what the model expects
// of the program and the faults that fired to the allowed outcomes. What one rank may do also
// depends on what the run shows of the others: which ranks recovered together, which layouts and
// ends they reported.
//
// It refers to the case, the expectation and the observation, which outlive it. One thread.
#pragma once

#include "properties/oracle/allowed_outcomes.h"
#include "properties/oracle/error_context.h"
#include "properties/oracle/fault_errors.h"
#include "properties/oracle/program_errors.h"

namespace lockstep::properties {

class Outcomes {
 public:
  Outcomes(const Case& c, const reference::Expectation& expectation,
           const Observation& observation);
  Outcomes(const Outcomes&) = delete;  // its parts refer to it
  Outcomes& operator=(const Outcomes&) = delete;

  // Answers for this rank from now on.
  void set_rank(std::size_t rank) { c_.rank_ = rank; }

  // A step, and the end_join() of a rank without inputs (S2).
  AllowedOutcomes of_step(std::uint32_t step) const;
  AllowedOutcomes of_end_join() const;
  // As of_step(), without the errors.
  AllowedOutcomes success_of_step(std::uint32_t step) const;
  // A construction or reset that failed and was repeated.
  AllowedOutcomes of_failed_attempt(const FailedCall& attempt) const;
  // Why some call of the rank must have failed; nullptr if none must have.
  const char* must_fail() const { return faults_.must_fail(); }

 private:
  enum class Loss : std::uint8_t { kNone, kUnrecorded, kYes };
  Loss loss_in_group_of(const FailedCall& attempt, std::size_t peer) const;
  bool is_interrupted(std::uint32_t step) const;
  void require_wait(std::uint32_t step, Requirements& it) const;
  void require_state(std::uint32_t step, Requirements& it) const;
  void require_state_after_backward(Among codes, Among calls, std::uint32_t step,
                                    Requirements& it) const;
  void require_own_view(Requirements& it) const;

  ErrorContext c_;
  const ProgramErrors program_;
  const FaultErrors faults_;
};

}  // namespace lockstep::properties
