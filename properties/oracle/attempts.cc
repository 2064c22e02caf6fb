// The oracle on constructions and resets that failed because of a fault, and that a later attempt
// made good: what each rank was told (F2).
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "properties/case/hook_error.h"
#include "properties/oracle/fault_reach.h"
#include "properties/oracle/oracles.h"

namespace lockstep::properties {
namespace {

class AttemptOracle {
 public:
  AttemptOracle(const Case& c, const Observation& observation)
      : case_(c), observation_(observation), fatal_(fatal_faults(c, observation)) {}

  // Returns what is wrong, or an empty text.
  std::string judge(std::uint32_t rank, const FailedCall& attempt) const {
    const Failure& failure = *attempt.failure;
    const std::vector<std::uint32_t> members = members_of(rank, attempt.generation);
    if (failure.detail.empty()) return "says nothing";
    if (failure.code == Code::kInternal || failure.code == Code::kPoisoned)
      return "is none of a construction or reset";
    // The harness itself writes into the store, too.
    const bool may_be_nobody = !broken_stores(case_, observation_).empty();
    if (failure.reported_by != number_of(rank, members) &&
        !(may_be_nobody && failure.reported_by == kNone))
      return fmt::format("names rank {} as the one that reports it", failure.reported_by);
    const std::optional<faults::Fault> fault = cause_of(attempt);
    if (!fault) return "";
    // While ranks agree, peers may be in a pass of an earlier reducer; what comes later in a
    // construction or a reset belongs to the next pass. Refused memory may come from either.
    // An abort names the collective of the peer that aborted, and the pass of this rank.
    const bool is_abort = failure.code == Code::kAborted || fault->kind == faults::Kind::kUserAbort;
    const bool is_of_peer = is_abort && failure.rank != number_of(rank, members);
    const bool agrees =
        failure.collective == "all_gather" && failure.code != Code::kOutOfMemory && !is_of_peer;
    if (agrees && failure.pass != kNone) return fmt::format("names pass {}", failure.pass);
    const int number = number_of(fault->rank, members);
    if (failure.rank != number && failure.suspect != number)
      return fmt::format("does not name rank {}", number);
    return fault->rank == rank ? judge_own(*fault, failure) : "";
  }

 private:
  // What the rank raises whose call failed, or that was refused memory.
  std::string judge_own(const faults::Fault& fault, const Failure& failure) const {
    if (fault.kind == faults::Kind::kUserAbort)
      return failure.code == user_abort_error(fault) && failure.definite
                 ? ""
                 : "does not say for certain that the user aborted";
    if (fault.kind == faults::Kind::kMemoryRefused)
      return failure.code == Code::kOutOfMemory ? "" : "does not say that memory was refused";
    if (failure.code != Code::kTransport) return "is not that of a call that failed";
    return says_which(faults::connect_call(fault), failure) && has_words_of_call(case_, failure)
               ? ""
               : "does not say which call failed, and how";
  }

  // A question about a communicator tells how the call ended that makes it.
  static bool says_which(faults::ConnectCall call, const Failure& failure) {
    using Call = faults::ConnectCall;
    const auto names = [&](Call each) {
      return failure.detail.find(faults::name_of(each)) != std::string::npos;
    };
    return call == Call::kAsyncError ? names(Call::kInit) || names(Call::kShrink) : names(call);
  }

  std::vector<std::uint32_t> members_of(std::uint32_t rank, std::uint32_t generation) const {
    std::vector<std::uint32_t> members;
    for (std::uint32_t each = 0; generation == 0 && each < case_.program.world; ++each)
      members.push_back(each);
    if (generation > 0) members = observation_.recoveries[generation - 1].survivors;
    const std::uint32_t group = reference::group_of(case_.program, rank);
    std::erase_if(members, [&](std::uint32_t each) {
      return reference::group_of(case_.program, each) != group;
    });
    return members;
  }
  static int number_of(std::uint32_t rank, const std::vector<std::uint32_t>& members) {
    const auto found = std::find(members.begin(), members.end(), rank);
    return found == members.end() ? kNone : static_cast<int>(found - members.begin());
  }

  // Returns whether some rank of this group failed in a step by itself. Its error is a first cause,
  // too, and may have ended the group before the attempt.
  bool has_own_error(std::uint32_t generation) const {
    for (std::uint32_t rank = 0; rank < observation_.ranks.size(); ++rank) {
      const int number = number_of(rank, members_of(rank, generation));
      for (const ObservedStep& step : observation_.ranks[rank].steps) {
        const bool is_here = step.generation == generation && !step.status.ok();
        if (is_here && step.status.failure().definite && step.status.failure().rank == number)
          return true;
      }
    }
    return false;
  }

  // The one call that failed while the ranks connected, or the one refusal of memory, if nothing
  // else can have ended the attempt: the other faults came before it. Of several groups,
  // those that were made before do not learn why the next one was not.
  std::optional<faults::Fault> cause_of(const FailedCall& attempt) const {
    const reference::Program& program = case_.program;
    if (reference::reducer_count(program) > 1 || program.options.own_group) return std::nullopt;
    if (!broken_stores(case_, observation_).empty()) return std::nullopt;
    if (has_own_error(attempt.generation)) return std::nullopt;
    std::optional<faults::Fault> cause;
    for (const faults::Fault& fault : fatal_) {
      if (fault.step < attempt.step) continue;
      const bool is_named = fault.kind == faults::Kind::kConnectError ||
                            fault.kind == faults::Kind::kMemoryRefused ||
                            fault.kind == faults::Kind::kUserAbort;
      const bool is_it = is_named && fault.in_reset && fault.step == attempt.step && !cause;
      if (!is_it) return std::nullopt;
      cause = fault;
    }
    return cause;
  }

  const Case& case_;
  const Observation& observation_;
  const std::vector<faults::Fault> fatal_;
};

}  // namespace

Verdict judge_attempts(const Case& c, const Observation& observation) {
  const AttemptOracle oracle(c, observation);
  for (std::uint32_t rank = 0; rank < observation.ranks.size(); ++rank) {
    for (const FailedCall& attempt : observation.ranks[rank].failed_joins) {
      if (!attempt.failure || observation.ranks[rank].exited) continue;
      const std::string wrong = oracle.judge(rank, attempt);
      if (!wrong.empty())
        return {Failing::kWrongError, "reuse",
                fmt::format("rank {}: the error of an attempt before step {} {}: {}", rank,
                            attempt.step, wrong, attempt.error)};
    }
  }
  return {};
}

}  // namespace lockstep::properties
