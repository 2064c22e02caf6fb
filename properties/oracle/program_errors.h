// ProgramErrors: the errors in which the program itself must end. The model says which of them a
// rank may report (reference/outcome.h); here that becomes what an error must look like (F2).
//
// It refers to the context, and answers for the context's rank. Pure functions; one thread.
#pragma once

#include "properties/oracle/error_context.h"

namespace lockstep::properties {

// Returns whether two reducers on one group that share a backward may mismatch (F7) although no
// step of the program fails.
bool may_mismatch(const reference::Program& program);

class ProgramErrors {
 public:
  explicit ProgramErrors(const ErrorContext& context) : c_(context) {}

  // Add what the rank may report of the errors that some rank must raise.
  void allow_in_step(std::uint32_t step, std::vector<AllowedError>& errors) const;
  void allow_in_join(std::vector<AllowedError>& errors) const;

  // Whether two reducers of one group that share a backward may mismatch (F7).
  bool may_mismatch() const;

  // The passes of these steps, and those that end_join() may name.
  Among passes_of(std::uint32_t first, std::uint32_t last) const;
  Among passes_of_join() const;
  // Requires that the error names one of the buckets that there are in these steps, with all of its
  // parameters, or neither bucket nor parameters.
  void require_bucket(std::uint32_t first, std::uint32_t last, Requirements& requirements) const;

 private:
  using Share = reference::Expectation;  // of one reducer
  bool knows_layout(const Share& share, std::uint32_t step) const;
  AllowedError allow(const reference::ReportableError& error) const;

  const ErrorContext& c_;
};

}  // namespace lockstep::properties
