#include "properties/oracle/program_errors.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::properties {

using reference::Error;
using reference::ExpectedRankStep;
using reference::Outcome;

namespace {

Code code_of(Error error) {
  switch (error) {
    case Error::kIncomplete:
      return Code::kIncomplete;
    case Error::kReadyTwice:
      return Code::kReadyTwice;
    case Error::kSecondBackward:
      return Code::kSecondBackward;
    case Error::kUsageChanged:
      return Code::kUsageChanged;
    case Error::kRequiresGrad:
      return Code::kRequiresGrad;
    case Error::kUnevenInputs:
      return Code::kUnevenInputs;
    case Error::kUndefinedSparse:  // not an error of the contract
    case Error::kNone:
      break;
  }
  return Code::kOk;
}

std::string name(std::uint32_t parameter) { return fmt::format("p{}", parameter); }

}  // namespace

// Returns the first step of this step's group, or of its reducers.
std::uint32_t ProgramErrors::begin_of_group(std::uint32_t step) const {
  std::uint32_t begin = 0;
  const auto note = [&](std::uint32_t first) {
    if (first <= step) begin = std::max(begin, first);
  };
  for (const reference::Recovery& recovery : c_.observation_.recoveries) note(recovery.before_step);
  for (std::uint32_t s = 0; s < step && s < c_.expectation_.steps.size(); ++s)
    if (c_.expectation_.steps[s].any_error) note(s + 1);
  note(c_.case_.program.renewed);
  return begin;
}

// Returns the number of the step's pass, or of the pass that would come next in the step.
std::int64_t ProgramErrors::pass_number(const reference::Expectation& share,
                                        std::uint32_t step) const {
  return pass_number(share, step, begin_of_group(step));
}

std::int64_t ProgramErrors::pass_number(const reference::Expectation& share, std::uint32_t step,
                                        std::uint32_t begin) {
  const auto first = share.steps.begin() + begin;
  const auto end = share.steps.begin() +
                   static_cast<std::ptrdiff_t>(std::min<std::size_t>(step, share.steps.size()));
  return std::count_if(first, end, [](const auto& each) { return each.is_reduced; });
}

// Return the steps in which a peer may be while this rank is in `step`: from the last step that
// this rank could finish without the peer, to the next step that the peer cannot finish alone.
std::uint32_t ProgramErrors::first_reached(std::uint32_t step) const {
  const std::uint32_t begin = begin_of_group(step);
  while (step > begin && !c_.holds_together(--step)) {
  }
  return step;
}

std::uint32_t ProgramErrors::last_reached(std::uint32_t step) const {
  const auto steps = static_cast<std::uint32_t>(c_.expectation_.steps.size());
  while (step + 1 < steps)
    if (c_.holds_together(++step)) break;
  return step;
}

bool ProgramErrors::is_pass_of(const Failure& failure, std::uint32_t first,
                               std::uint32_t last) const {
  // A rank that is ahead is still in the same group, even if all ranks recover before the others
  // reach its step.
  const std::uint32_t begin = begin_of_group(first);
  for (std::uint32_t at = first; at <= last; ++at)
    if (c_.any_share(
            [&](const auto& share) { return failure.pass == pass_number(share, at, begin); }))
      return true;
  // A peer without inputs receives the announcement of the next pass (S2).
  if (c_.case_.program.options.join == reference::Join::kNone) return false;
  return c_.any_share([&](const auto& share) {
    return last < share.steps.size() && share.steps[last].is_reduced &&
           failure.pass == pass_number(share, last, begin) + 1;
  });
}

// Whether the pass belongs to any step, or to a step that would have followed in its group. For a
// rank that a fault ended, nobody knows how many of its passes were shadowed.
bool ProgramErrors::is_pass_of_join(const Failure& failure) const {
  const auto& steps = c_.case_.program.steps;
  const auto is_synced = [](const auto& each) { return each.kind == reference::PassKind::kSynced; };
  if (!c_.fatal_.empty())
    return failure.pass >= 0 &&
           failure.pass <= std::count_if(steps.begin(), steps.end(), is_synced);
  for (std::uint32_t at = 0; at < c_.expectation_.steps.size(); ++at)
    if (c_.any_share([&](const auto& share) {
          const std::int64_t number = pass_number(share, at);
          return failure.pass == number ||
                 (share.steps[at].is_reduced && failure.pass == number + 1);
        }))
      return true;
  return false;
}

// If the buckets follow an order that no rank reported, because the step of the rebuild failed,
// their layout is unknown (B2).
bool ProgramErrors::knows_layout(const reference::Expectation& share, std::uint32_t step) const {
  if (share.steps[step].layout == 0) return true;
  const std::uint32_t begin = begin_of_group(step);
  const auto tells = [&](const ObservedStep& each) {
    return begin <= each.step && each.step <= step && !each.rebuilt_order.empty();
  };
  const auto& ranks = c_.observation_.ranks;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (c_.is_peer(r, c_.rank_) && std::any_of(ranks[r].steps.begin(), ranks[r].steps.end(), tells))
      return true;
  return false;
}

// Whether the named parameters are in the named bucket: the first one for an own error; all of
// them for a failure of the bucket.
ProgramErrors::Match ProgramErrors::match_bucket(const reference::Expectation& share,
                                                 std::uint32_t step, const Failure& failure) const {
  if (failure.bucket == kNone) return failure.parameters.empty() ? Match::kYes : Match::kNo;
  if (!knows_layout(share, step)) return Match::kUnknown;
  const auto& buckets = reference::buckets_of(share, share.steps[step]);
  const auto index = static_cast<std::size_t>(failure.bucket);
  if (failure.bucket < 0 || index >= buckets.size() || failure.parameters.empty())
    return Match::kNo;
  const auto& members = buckets[index].parameters;
  if (is_own_error(failure.code) && failure.code != Code::kUserFailure) {
    const auto is_named = [&](std::uint32_t p) { return failure.parameters[0] == name(p); };
    for (std::uint32_t p = 0; p < c_.case_.program.parameters.size(); ++p)
      if (is_named(p))
        return std::find(members.begin(), members.end(),
                         reference::original_of(c_.case_.program, p)) != members.end()
                   ? Match::kYes
                   : Match::kNo;
    return Match::kNo;
  }
  return std::equal(members.begin(), members.end(), failure.parameters.begin(),
                    failure.parameters.end(),
                    [](std::uint32_t p, const std::string& named) { return named == name(p); })
             ? Match::kYes
             : Match::kNo;
}

ProgramErrors::Match ProgramErrors::match_bucket(const Failure& failure, std::uint32_t first,
                                                 std::uint32_t last) const {
  Match best = Match::kNo;
  const auto steps = static_cast<std::uint32_t>(c_.expectation_.steps.size());
  for (std::uint32_t at = first; at <= last && at < steps; ++at)
    if (c_.any_share([&](const auto& share) {
          best = std::max(best, match_bucket(share, at, failure));
          return best == Match::kYes;
        }))
      break;
  return best;
}

// Whether the failure correctly reports the own error of some rank. No rank reports in which step
// the others are.
ProgramErrors::Match ProgramErrors::match_some_step(const Failure& failure) const {
  Match best = Match::kNo;
  for (std::uint32_t at = 0; at < c_.expectation_.steps.size(); ++at) {
    ObservedStep here;
    here.step = at;
    best = std::max(best, match_causes(at, here, failure));
  }
  return best;
}

// Whether the failure correctly reports the own error of some rank, in this step or in a later
// one that a peer has already reached. A peer cannot be ahead by more than one step that
// communicates.
ProgramErrors::Match ProgramErrors::match_step(const ObservedStep& step,
                                               const Failure& failure) const {
  Match best = Match::kNo;
  if (failure.reported_by != c_.group_rank(step.step, c_.rank_)) return best;
  for (std::uint32_t at = step.step; at < c_.expectation_.steps.size(); ++at) {
    best = std::max(best, match_causes(at, step, failure));
    if ((at > step.step && c_.holds_together(at)) || c_.expectation_.steps[at].any_error) break;
  }
  return best;
}

ProgramErrors::Match ProgramErrors::match_causes(std::uint32_t at, const ObservedStep& step,
                                                 const Failure& failure) const {
  Match best = Match::kNo;
  static_cast<void>(c_.any_share([&](const auto& share) {
    best = std::max(best, match_cause(share, at, step, failure));
    return best == Match::kYes;
  }));
  return best;
}

ProgramErrors::Match ProgramErrors::match_cause(const reference::Expectation& share,
                                                std::uint32_t at, const ObservedStep& step,
                                                const Failure& failure) const {
  Match best = Match::kNo;
  const auto& ranks = share.steps[at].ranks;
  for (std::size_t q = 0; q < ranks.size(); ++q) {
    const ExpectedRankStep& cause = ranks[q];
    const bool is_other = !cause.requiring.empty() && failure.code == Code::kRequiresGrad;
    if (cause.outcome != Outcome::kOwnError) continue;
    if (failure.code != code_of(cause.error) && !is_other) continue;
    const std::size_t named = cause.error == Error::kUnevenInputs ? first_without_inputs(at) : q;
    if (failure.rank != c_.group_rank(step.step, named)) continue;
    if (failure.pass != pass_number(share, at)) continue;
    const bool names_parameters = !failure.parameters.empty() && !cause.parameters.empty();
    const Match bucket = names_parameters ? match_bucket(share, at, failure) : Match::kYes;
    const bool own_call =
        q == c_.rank_ && step.failed_call != static_cast<std::int32_t>(cause.error_call);
    if (q == c_.rank_ && (at != step.step || own_call)) continue;
    if (is_other ? names_one_of(cause.requiring, failure) : names_match(cause, failure))
      best = std::max(best, bucket);
  }
  return best;
}

// Returns the rank that an early termination must name (S2).
std::size_t ProgramErrors::first_without_inputs(std::uint32_t step) const {
  const auto& ranks = c_.expectation_.steps[step].ranks;
  std::uint32_t rank = 0;
  while (rank < ranks.size() && (!c_.is_peer(rank, c_.rank_) || !ranks[rank].present ||
                                 reference::has_input(c_.case_.program, rank, step)))
    ++rank;
  return rank;
}

bool ProgramErrors::names_one_of(const std::vector<std::uint32_t>& parameters,
                                 const Failure& failure) {
  return failure.parameters.size() == 1 &&
         std::any_of(parameters.begin(), parameters.end(),
                     [&](std::uint32_t p) { return failure.parameters[0] == name(p); });
}

bool ProgramErrors::names_match(const ExpectedRankStep& cause, const Failure& failure) {
  const auto& named = failure.parameters;
  const auto is_named = [&named](std::uint32_t p) {
    return std::find(named.begin(), named.end(), name(p)) != named.end();
  };
  switch (cause.error) {
    case Error::kIncomplete:
    case Error::kUsageChanged:
      return named.size() == cause.parameters.size() &&
             std::all_of(cause.parameters.begin(), cause.parameters.end(), is_named);
    case Error::kReadyTwice:
    case Error::kRequiresGrad:
      return names_one_of(cause.parameters, failure);
    default:
      return true;
  }
}

std::string ProgramErrors::describe_cause(std::uint32_t step) const {
  std::string out;
  const auto& ranks = c_.expectation_.steps[step].ranks;
  for (std::size_t q = 0; q < ranks.size(); ++q) {
    if (ranks[q].outcome != Outcome::kOwnError) continue;
    out += fmt::format("{}'{}' of rank {} in call {}", out.empty() ? "" : " or ",
                       lockstep::name_of(code_of(ranks[q].error)), q, ranks[q].error_call);
    for (const std::uint32_t p : ranks[q].parameters) out += " " + name(p);
  }
  return out;
}

}  // namespace lockstep::properties
