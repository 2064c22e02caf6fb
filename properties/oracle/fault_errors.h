// FaultErrors: the errors that the faults of the plan that fired allow: what these must name (F2,
// F3), and whom they may suspect.
//
// It refers to the context, and answers for the context's rank. Pure functions; one thread.
#pragma once

#include <optional>
#include <vector>

#include "properties/oracle/error_context.h"
#include "properties/oracle/program_errors.h"

namespace lockstep::properties {

class FaultErrors {
 public:
  FaultErrors(const ErrorContext& context, const ProgramErrors& program)
      : c_(context), program_(program) {}

  // Add the errors of a step, if a fault can have reached the rank there, and of end_join().
  void allow_in_step(std::uint32_t step, std::vector<AllowedError>& errors) const;
  void allow_in_join(std::vector<AllowedError>& errors) const;
  // Adds the errors of a rank that cannot learn why others failed, because a store has lost their
  // reports. Call it if something makes the step fail.
  void allow_without_reports(std::uint32_t step, std::vector<AllowedError>& errors) const;
  // Why some call of the rank must have failed; nullptr if none must have.
  const char* must_fail() const;

 private:
  void require_group_code(Requirements& it) const;
  std::optional<Unspecified> no_suspect_without_reports(std::uint32_t step) const;
  bool reaches(const faults::Fault& fault, std::uint32_t step) const;
  void require_names(std::uint32_t step, Requirements& it) const;
  void require_place(Requirements& it) const;
  bool is_own_call() const;
  void require_code(bool is_local, Requirements& it) const;
  void require_cause(std::uint32_t step, Requirements& it) const;
  void require_throw_pass(Among culprits, Requirements& it) const;
  void require_sender(std::uint32_t step, Requirements& it) const;
  void require_hook(std::uint32_t step, Requirements& it) const;
  void require_abort(std::uint32_t step, Requirements& it) const;
  void require_suspect(std::uint32_t step, Requirements& it) const;
  void require_one_of(std::uint32_t step, Among suspects, Requirements& it,
                      Reasons open_anyway) const;
  bool marks_one_rank(Reasons open_anyway) const;
  bool knows_all_places() const;
  Among places(std::uint32_t step) const;
  std::optional<Unspecified> no_suspect(std::uint32_t step) const;
  bool cuts_off_one(const faults::Fault& fault) const;
  Among suspects(std::uint32_t step) const;
  bool is_done_or_dead(std::uint32_t step) const;
  bool fails_in_reset(std::uint32_t step) const;
  bool has_groups() const;
  bool was_deceived() const;

  const ErrorContext& c_;
  const ProgramErrors& program_;
};

}  // namespace lockstep::properties
