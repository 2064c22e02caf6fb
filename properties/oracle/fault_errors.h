// FaultErrors: the rules about errors that a fault of the plan caused: what they must name (F2,
// F3), and who may be suspected.
//
// It refers to the context, and judges the context's rank. One thread.
#pragma once

#include <optional>

#include "properties/oracle/error_context.h"
#include "properties/oracle/program_errors.h"

namespace lockstep::properties {

class FaultErrors {
 public:
  FaultErrors(const ErrorContext& context, const ProgramErrors& program)
      : c_(context), program_(program) {}

  // Of a step that a fault can have reached. Counts what it cannot judge.
  Verdict judge(const ObservedStep& step, const Failure& failure, UnspecifiedCounts& counts);
  // Of a rank without inputs (S2).
  Ruling judge_join(const Failure& failure) const;

 private:
  Ruling judge_code(const ObservedStep& step, const Failure& failure) const;
  Ruling judge_culprit(const ObservedStep& step, const Failure& failure) const;
  Ruling judge_suspect(const ObservedStep& step, const Failure& failure) const;
  Ruling judge_sender(const ObservedStep& step, const Failure& failure) const;
  Ruling judge_pass_of_node(const ObservedStep& step, const Failure& failure) const;
  std::optional<Unspecified> no_suspect(std::uint32_t step) const;
  std::vector<std::uint32_t> suspects() const;
  static bool says_that_one_left(const Failure& failure);
  bool is_done_or_dead(std::uint32_t step) const;
  static bool tells_culprit(const faults::Fault& fault);
  bool is_given_up_elsewhere(const Failure& failure) const;
  bool is_closed_elsewhere(const Failure& failure) const;

  const ErrorContext& c_;
  const ProgramErrors& program_;
};

}  // namespace lockstep::properties
