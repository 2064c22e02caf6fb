#include "reference/model/multi_reducer.h"

#include <cassert>
#include <utility>
#include <vector>

#include "reference/state.h"

namespace lockstep::reference {
namespace {

// What the reducers of one rank come to in one step, by reducer.
using RankShares = std::vector<const ExpectedRankStep*>;

// Gradients and state, each from the reducer whose it is. `first_bits`: where the bits of each
// reducer begin.
ExpectedRankStep merge_values(const Program& program, const RankShares& shares,
                              const std::vector<std::uint64_t>& first_bits) {
  assert(first_bits.size() == shares.size());
  ExpectedRankStep merged;
  merged.present = shares[0]->present;
  merged.state = shares[0]->state;
  for (std::size_t p = 0; p < program.parameters.size(); ++p) {
    const std::uint32_t reducer = program.parameters[p].reducer;
    merged.gradients.push_back(shares[reducer]->gradients[p]);
    merged.gradients.back().offset += first_bits[reducer];
  }
  const std::vector<StateTensor> tensors = state_tensors(program);
  assert(merged.state.empty() || merged.state.size() == tensors.size());
  for (std::size_t t = 0; t < merged.state.size(); ++t)
    merged.state[t] = shares[tensors[t].reducer]->state[t];
  return merged;
}

// A rank that fails with one reducer stops in the middle of the other's pass: of two errors that of
// the first reducer counts.
void merge_outcomes(const RankShares& shares, bool may_be_stopped, ExpectedRankStep& merged) {
  merged.outcome = may_be_stopped ? Outcome::kSuccessOrPeerError : Outcome::kSuccess;
  for (const ExpectedRankStep* share : shares) {
    assert(share->present == merged.present);
    assert(may_be_stopped || share->outcome == Outcome::kSuccess);
    if (share->outcome == Outcome::kPeerError) merged.outcome = Outcome::kPeerError;
  }
  for (const ExpectedRankStep* share : shares) {
    if (share->outcome != Outcome::kOwnError || merged.outcome == Outcome::kOwnError) continue;
    merged.outcome = Outcome::kOwnError;
    merged.error = share->error;
    merged.error_call = share->error_call;
    merged.parameters = share->parameters;
    merged.requiring = share->requiring;
  }
}

}  // namespace

void merge_expectations(const Program& program, Expectation& expectation) {
  const std::vector<Expectation>& shares = expectation.shares;
  const std::uint32_t reducers = reducer_count(program);
  assert(shares.size() == group_count(program) * reducers);
  assert(expectation.bits.empty());
  std::vector<std::vector<std::uint64_t>> first_bits(group_count(program));  // by reducer
  for (std::size_t s = 0; s < shares.size(); ++s) {
    first_bits[s / reducers].push_back(expectation.bits.size());
    expectation.bits.insert(expectation.bits.end(), shares[s].bits.begin(), shares[s].bits.end());
  }
  // `ranks_of` returns all ranks of a share.
  const auto shares_of = [&](std::uint32_t rank, const auto& ranks_of) {
    RankShares of_rank;
    for (std::uint32_t reducer = 0; reducer < reducers; ++reducer)
      of_rank.push_back(&ranks_of(share_of(program, expectation, rank, reducer))[rank]);
    return of_rank;
  };
  expectation.buckets = shares.front().buckets;
  expectation.rebuilt = shares.front().rebuilt;
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    ExpectedStep& step = expectation.steps.emplace_back();
    step.collectives = shares.front().steps[s].collectives;
    step.layout = shares.front().steps[s].layout;
    std::vector<bool> has_error(group_count(program));
    for (std::size_t share = 0; share < shares.size(); ++share) {
      const ExpectedStep& from = shares[share].steps[s];
      if (from.any_error) step.any_error = has_error[share / reducers] = true;
      step.is_reduced = step.is_reduced || from.is_reduced;
    }
    const bool any_leaves = step.any_error && program.options.join != Join::kNone;
    for (std::uint32_t rank = 0; rank < program.world; ++rank) {
      const std::uint32_t group = group_of(program, rank);
      const RankShares of_rank = shares_of(
          rank, [&](const Expectation& share) -> const auto& { return share.steps[s].ranks; });
      step.ranks.push_back(merge_values(program, of_rank, first_bits[group]));
      merge_outcomes(of_rank, has_error[group] || any_leaves, step.ranks.back());
    }
  }
  for (std::uint32_t rank = 0; rank < shares.front().ending.size(); ++rank)
    expectation.ending.push_back(merge_values(
        program,
        shares_of(
            rank, [](const Expectation& share) -> const auto& { return share.ending; }),
        first_bits[group_of(program, rank)]));
}

}  // namespace lockstep::reference
