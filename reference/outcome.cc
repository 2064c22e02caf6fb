#include "reference/outcome.h"

#include <algorithm>
#include <cassert>

#include "reference/model/engine.h"

namespace lockstep::reference {
namespace {

using Naming = ReportableError::Naming;

Naming naming_of(Error error) {
  if (error == Error::kIncomplete || error == Error::kUsageChanged) return Naming::kAll;
  if (error == Error::kReadyTwice || error == Error::kRequiresGrad) return Naming::kOne;
  return Naming::kAnything;
}

// Returns the rank that an early termination must name (S2).
std::size_t first_without_inputs(const ModelledRun& run, std::size_t peer, std::uint32_t step) {
  const auto& ranks = run.expectation.steps[step].ranks;
  std::uint32_t rank = 0;
  while (!are_peers(run.program, rank, peer) || !ranks[rank].present ||
         has_input(run.program, rank, step)) {
    ++rank;
    assert(rank < ranks.size());
  }
  return rank;
}

// The pass that the error of a rank in step `at` is about: that of the step, or the last one before
// in which the rank trained if its backward started from outputs that it held
// (Backward::held_synced).
std::int64_t pass_of_error(const ModelledRun& run, const Expectation& share, std::size_t rank,
                           std::uint32_t at) {
  const ExpectedRankStep& expected = share.steps[at].ranks[rank];
  std::uint32_t step = at;
  if (expected.error == Error::kSecondBackward &&
      backward_of(pass_of(run.program.steps[at], static_cast<std::uint32_t>(rank)),
                  expected.error_call)
          .held_synced)
    do {
      assert(step > 0);
      --step;
    } while (!share.steps[step].is_reduced ||
             !has_input(run.program, static_cast<std::uint32_t>(rank), step));
  return pass_number(share, step, begin_of_group(run, step));
}

// Appends that a peer is absent in step `at`, for which a rank in step `here` waits in vain (P8).
void append_absence(const ModelledRun& run, std::size_t rank, std::uint32_t here, std::uint32_t at,
                    std::vector<ReportableError>& errors) {
  const auto& steps = run.program.steps;
  for (std::uint32_t peer = 0; peer < run.program.world; ++peer) {
    if (peer == rank || !are_peers(run.program, peer, rank)) continue;
    if (!pass_of(steps[at], peer).absent ||
        pass_of(steps[at], static_cast<std::uint32_t>(rank)).absent)
      continue;
    if (!run.expectation.steps[at].ranks[peer].present) continue;
    for (std::uint32_t reducer = 0; reducer < reducer_count(run.program); ++reducer) {
      const Expectation& share = share_of(run.program, run.expectation, rank, reducer);
      ReportableError error;
      error.error = Error::kAbsent;
      error.reducer = reducer;
      error.step = at;
      error.culprit = rank_in_group(run.program, run.recoveries, here, peer);
      error.pass = pass_number(share, at, begin_of_group(run, at));
      errors.push_back(error);
    }
  }
}

// Appends what `rank`, which is in step `here`, may report of the errors of step `at`.
void append_errors(const ModelledRun& run, std::size_t rank, std::uint32_t here, std::uint32_t at,
                   std::vector<ReportableError>& errors) {
  assert(here <= at);
  for (std::uint32_t reducer = 0; reducer < reducer_count(run.program); ++reducer) {
    const Expectation& share = share_of(run.program, run.expectation, rank, reducer);
    const auto& ranks = share.steps[at].ranks;
    for (std::size_t raising = 0; raising < ranks.size(); ++raising) {
      const ExpectedRankStep& expected = ranks[raising];
      if (expected.outcome != Outcome::kOwnError) continue;
      if (raising == rank && at != here) continue;  // it has not come to that step
      const bool is_uneven = expected.error == Error::kUnevenInputs;
      const std::size_t culprit = is_uneven ? first_without_inputs(run, rank, at) : raising;
      ReportableError error;
      error.error = expected.error;
      error.reducer = reducer;
      error.step = at;
      error.culprit = rank_in_group(run.program, run.recoveries, here, culprit);
      error.pass = pass_of_error(run, share, raising, at);
      if (raising == rank) error.call = expected.error_call;
      error.naming = naming_of(expected.error);
      error.parameters = &expected.parameters;
      assert(error.naming == Naming::kAnything || !expected.parameters.empty());
      errors.push_back(error);
      if (expected.requiring.empty()) continue;
      error.error = Error::kRequiresGrad;
      error.naming = naming_of(error.error);
      error.parameters = &expected.requiring;
      errors.push_back(error);
    }
  }
}

}  // namespace

bool are_peers(const Program& program, std::size_t one, std::size_t other) {
  const std::uint32_t groups = group_count(program);
  return one % groups == other % groups;
}

int rank_in_group(const Program& program, const std::vector<Recovery>& recoveries,
                  std::uint32_t step, std::size_t original) {
  assert(original < program.world);
  int rank = static_cast<int>(original / group_count(program));
  for (const Recovery& recovery : recoveries) {
    if (recovery.before_step > step) break;
    const auto& members = recovery.survivors;
    const auto here = std::ranges::find(members, original);
    rank = here == members.end()
               ? -1
               : static_cast<int>(std::count_if(members.begin(), here, [&](std::uint32_t other) {
                   return are_peers(program, other, original);
                 }));
  }
  return rank;
}

bool holds_together(const ExpectedStep& step, std::size_t first) {
  using Op = ExpectedCollective::Op;
  for (std::size_t c = first; c < step.collectives.size(); ++c) {
    const auto& [op, bucket, count, dtype] = step.collectives[c];
    if (count > 0 && op != Op::kBroadcastOrder && op != Op::kBroadcastBuffers) return true;
  }
  return false;
}

bool holds_together(const Program& program, const Expectation& expectation, std::size_t rank,
                    std::uint32_t step) {
  for (std::uint32_t reducer = 0; reducer < reducer_count(program); ++reducer)
    if (holds_together(share_of(program, expectation, rank, reducer).steps[step])) return true;
  return false;
}

std::uint32_t first_reached(const ModelledRun& run, std::size_t rank, std::uint32_t step) {
  const std::uint32_t begin = begin_of_group(run, step);
  while (step > begin && !holds_together(run.program, run.expectation, rank, --step)) {
  }
  return step;
}

std::uint32_t last_reached(const ModelledRun& run, std::size_t rank, std::uint32_t step) {
  const auto steps = static_cast<std::uint32_t>(run.expectation.steps.size());
  while (step + 1 < steps)
    if (holds_together(run.program, run.expectation, rank, ++step)) break;
  return step;
}

std::uint32_t begin_of_group(const ModelledRun& run, std::uint32_t step) {
  std::uint32_t begin = 0;
  const auto note = [&](std::uint32_t first) {
    if (first <= step) begin = std::max(begin, first);
  };
  const auto& steps = run.expectation.steps;
  for (const Recovery& recovery : run.recoveries) note(recovery.before_step);
  for (std::uint32_t s = 0; s < step && s < steps.size(); ++s)
    if (steps[s].any_error) note(s + 1);
  note(run.program.recreate_before_step);
  return begin;
}

std::int64_t pass_number(const Expectation& share, std::uint32_t step, std::uint32_t begin) {
  const auto first = share.steps.begin() + begin;
  const auto end = share.steps.begin() +
                   static_cast<std::ptrdiff_t>(std::min<std::size_t>(step, share.steps.size()));
  return std::count_if(first, end, [](const auto& each) { return each.is_reduced; });
}

std::vector<ReportableError> reportable_errors(const ModelledRun& run, std::size_t rank,
                                               std::uint32_t step) {
  std::vector<ReportableError> errors;
  const auto& steps = run.expectation.steps;
  assert(rank < run.program.world);
  for (std::uint32_t at = step; at < steps.size(); ++at) {
    append_errors(run, rank, step, at, errors);
    append_absence(run, rank, step, at, errors);
    const bool is_last = at > step && holds_together(run.program, run.expectation, rank, at);
    if (is_last || steps[at].any_error) break;
  }
  return errors;
}

std::vector<ReportableError> reportable_errors_of_join(const ModelledRun& run, std::size_t rank) {
  std::vector<ReportableError> errors;
  for (std::uint32_t at = 0; at < run.expectation.steps.size(); ++at)
    append_errors(run, rank, at, at, errors);
  return errors;
}

}  // namespace lockstep::reference
