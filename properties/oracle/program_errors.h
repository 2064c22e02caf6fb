// ProgramErrors: what the model says of the errors that the program itself must end in: which
// passes and buckets there are in a step, and whether an error names the right ones (F2).
//
// It refers to the context, and judges the context's rank. Pure functions; one thread.
#pragma once

#include "properties/oracle/error_context.h"

namespace lockstep::properties {

class ProgramErrors {
 public:
  explicit ProgramErrors(const ErrorContext& context) : c_(context) {}

  enum class Match : std::uint8_t {
    kNo,
    kUnknown,  // as the layout of the buckets is not known
    kYes,
  };

  // Whether the failure correctly reports the own error of some rank: in this step or in one that a
  // peer can be in, or in any step, as no rank says in which step the others are.
  Match match_step(const ObservedStep& step, const Failure& failure) const;
  Match match_some_step(const Failure& failure) const;
  // The own errors that must be raised in the step, as text.
  std::string describe_cause(std::uint32_t step) const;

  // The steps in which a peer may be while this rank is in `step`.
  std::uint32_t first_reached(std::uint32_t step) const;
  std::uint32_t last_reached(std::uint32_t step) const;
  // Whether the failure's pass belongs to one of these steps, and whether the parameters that it
  // names are those of the bucket that it names.
  bool is_pass_of(const Failure& failure, std::uint32_t first, std::uint32_t last) const;
  bool is_pass_of_join(const Failure& failure) const;
  Match match_bucket(const Failure& failure, std::uint32_t first, std::uint32_t last) const;

 private:
  using Share = reference::Expectation;  // of one reducer
  std::uint32_t begin_of_group(std::uint32_t step) const;
  std::int64_t pass_number(const Share& share, std::uint32_t step) const;
  static std::int64_t pass_number(const Share& share, std::uint32_t step, std::uint32_t begin);
  bool knows_layout(const Share& share, std::uint32_t step) const;
  Match match_bucket(const Share& share, std::uint32_t step, const Failure& failure) const;
  Match match_causes(std::uint32_t at, const ObservedStep& step, const Failure& failure) const;
  Match match_cause(const Share& share, std::uint32_t at, const ObservedStep& step,
                    const Failure& failure) const;
  std::size_t first_without_inputs(std::uint32_t step) const;
  static bool names_one_of(const std::vector<std::uint32_t>& parameters, const Failure& failure);
  static bool names_match(const reference::ExpectedRankStep& cause, const Failure& failure);

  const ErrorContext& c_;
};

}  // namespace lockstep::properties
