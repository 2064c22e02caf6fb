// The oracle on constructions and resets that all ranks must refuse (B4,
// reference/construction_disagreement.h): every rank has the right error, which names who differs;
// no rank starts a collective that the others do not; nothing was written; and the group can still
// be used.
#include <fmt/format.h>

#include <algorithm>

#include "properties/oracle/fault_reach.h"
#include "properties/oracle/oracles.h"

namespace lockstep::properties {
namespace {

using reference::Refusal;

// What an agreement takes: one message of fixed size, and two texts at most; as much once more for
// a pinned layout, and one message for a second group.
constexpr std::int64_t kMostCollectives = 7;

class RefusalOracle {
 public:
  RefusalOracle(const Case& c, const Observation& observation, std::vector<std::uint32_t> members,
                const Refusal& refusal)
      : case_(c), observation_(observation), members_(std::move(members)), refusal_(refusal) {
    odd_one_ = static_cast<int>(std::find(members_.begin(), members_.end(), refusal.rank) -
                                members_.begin());
  }

  Verdict judge() {
    const auto has_tried = [&](std::uint32_t rank) {
      return !observation_.ranks[rank].refusals.empty();
    };
    // A rank that a fault kept from its new group leaves the others without their peer.
    const bool may_miss = !fatal_faults(case_, observation_).empty();
    for (rank_ = 0; rank_ < members_.size(); ++rank_) {
      if (has_tried(members_[rank_])) continue;
      return may_miss ? Verdict() : wrong("took no part in the attempt that had to be refused");
    }
    for (rank_ = 0; rank_ < members_.size(); ++rank_)
      if (Verdict verdict = judge_rank(); !verdict.ok()) return verdict;
    return {};
  }

 private:
  const ObservedRefusal& seen(std::size_t member) const {
    return observation_.ranks[members_[member]].refusals.front();
  }
  Verdict wrong(const std::string& what) const {
    return {
        Failing::kWrongError, "refusal",
        fmt::format("rank {}, at the {}: {}", members_[rank_],
                    case_.program.disagreement.at_reset ? "first reset" : "construction", what)};
  }

  Verdict judge_rank() const {
    const ObservedRefusal& own = seen(rank_);
    if (own.status.ok()) return wrong("no error, although a rank does not fit");
    const Failure& failure = own.status.failure();
    Verdict verdict =
        refusal_.by == Refusal::By::kAgreement ? judge_difference(failure) : judge_refusal(failure);
    if (!verdict.ok()) return verdict;
    if (failure.reported_by != static_cast<int>(rank_))
      return wrong(fmt::format("the error names rank {} as the one that reports it: {}",
                               failure.reported_by, failure.to_string()));
    if (!failure.definite) return wrong("the error is no definite one: " + failure.to_string());
    if (!own.next_collective.ok())
      return wrong("the group cannot be used any more: " + own.next_collective.to_string());
    if (own.next_sequence != seen(0).next_sequence || own.next_sequence > kMostCollectives)
      return wrong(fmt::format("the next collective is #{} on this rank and #{} on rank {}",
                               own.next_sequence, seen(0).next_sequence, members_[0]));
    if (!own.keeps_state)
      return wrong("the values or the buffers have changed: something was broadcast");
    return {};
  }

  // All ranks name rank 0 and a rank that differs from it.
  Verdict judge_difference(const Failure& failure) const {
    if (failure.code != Code::kDisagreement)
      return wrong("the error must say that ranks differ, and is: " + failure.to_string());
    const bool is_right = odd_one_ == 0 ? failure.rank > 0 : failure.rank == odd_one_;
    if (!is_right || failure.suspect != failure.rank)
      return wrong(fmt::format("the error must name rank {}: {}", odd_one_, failure.to_string()));
    if (failure.collective != "all_gather")
      return wrong("the error must name the collective that showed it: " + failure.to_string());
    const std::string first = what_has(0, failure.detail);
    const std::string other = what_has(failure.rank, failure.detail);
    if (first.empty() || other.empty())
      return wrong(fmt::format("the error must say what ranks 0 and {} have: {}", failure.rank,
                               failure.to_string()));
    if (first == other)
      return wrong("the error must say where the ranks differ: " + failure.to_string());
    return {};
  }

  // "rank 0 has 'one line', rank 2 has nothing more": what the text says of the rank.
  static std::string what_has(int rank, const std::string& detail) {
    const std::string begin = fmt::format("rank {} has ", rank);
    const std::size_t at = detail.find(begin);
    if (at == std::string::npos) return {};
    const std::size_t from = at + begin.size();
    const bool is_quoted = from < detail.size() && detail[from] == '\'';
    const std::size_t end = detail.find(is_quoted ? "'" : ",", from + 1);
    return detail.substr(from, end == std::string::npos ? end : end - from);
  }

  // The rank that refuses has its own error, and the others have that with its number. If every
  // rank refuses, each has its own.
  Verdict judge_refusal(const Failure& failure) const {
    if (failure.code != Code::kInvalidArgument)
      return wrong("the error must be that of an invalid argument: " + failure.to_string());
    const bool is_own =
        refusal_.by == Refusal::By::kEveryRank || static_cast<int>(rank_) == odd_one_;
    const int culprit = is_own ? static_cast<int>(rank_) : odd_one_;
    if (failure.rank != culprit)
      return wrong(fmt::format("the error must name rank {}: {}", culprit, failure.to_string()));
    if (is_own)
      return failure.suspect == kNone
                 ? Verdict()
                 : wrong("the rank that refuses suspects one of its group: " + failure.to_string());
    const std::string& reason = seen(static_cast<std::size_t>(odd_one_)).status.failure().detail;
    const std::string expected = fmt::format("rank {} refused: {}", odd_one_, reason);
    if (failure.suspect == odd_one_ && failure.detail == expected) return {};
    return wrong(fmt::format("the error must say \"{}\": {}", expected, failure.to_string()));
  }

  const Case& case_;
  const Observation& observation_;
  const std::vector<std::uint32_t> members_;  // original ranks, by their number in the group
  const Refusal& refusal_;
  int odd_one_ = 0;       // by its number in the group
  std::size_t rank_ = 0;  // the rank that is judged, by its number in the group
};

// The ranks that are constructed together, or reset together for the first time.
std::vector<std::uint32_t> members_of(const Case& c, const Observation& observation,
                                      std::uint32_t group) {
  std::vector<std::uint32_t> members;
  if (c.program.disagreement.at_reset) {
    if (!observation.recoveries.empty()) members = observation.recoveries.front().survivors;
  } else {
    for (std::uint32_t rank = 0; rank < c.program.world; ++rank) members.push_back(rank);
  }
  std::erase_if(members,
                [&](std::uint32_t rank) { return reference::group_of(c.program, rank) != group; });
  return members;
}

}  // namespace

Verdict judge_refusals(const Case& c, const Observation& observation) {
  for (std::uint32_t group = 0; group < reference::group_count(c.program); ++group) {
    const std::vector<std::uint32_t> members = members_of(c, observation, group);
    const std::optional<Refusal> refusal = reference::refusal_of(c.program, members);
    if (!refusal) continue;
    Verdict verdict = RefusalOracle(c, observation, members, *refusal).judge();
    if (!verdict.ok()) return verdict;
  }
  return {};
}

}  // namespace lockstep::properties
