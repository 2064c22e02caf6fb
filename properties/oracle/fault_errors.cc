#include "properties/oracle/fault_errors.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::properties {

Ruling FaultErrors::judge_join(const Failure& failure) const {
  const auto lacks = [&](const std::string& what) {
    return c_.wrong("error", "end_join does not name " + what + ": " + failure.to_string());
  };
  if (!c_.has_rank(failure)) return lacks("a rank to look at");
  if (failure.bucket == kNone && failure.collective.empty() && !is_own_error(failure.code))
    return lacks("the bucket or collective");
  if (failure.bucket != kNone && failure.parameters.empty()) return lacks("a parameter");
  if (c_.fatal_.size() != 1) return Unspecified::kSeveralFaults;
  if (c_.program_fails()) return Unspecified::kFaultsAndErrors;
  if (c_.fatal_[0].kind != faults::Kind::kNodeThrows) return Unspecified::kCulpritOfJoin;
  const std::uint32_t culprit = c_.fatal_[0].rank % c_.case_.program.world;
  if (failure.rank == c_.group_rank(0, culprit)) return {};
  return lacks(fmt::format("that rank {} is the cause", culprit));
}

// A rank that has lost a peer in the group of one reducer aborts the other reducer, whose own
// group knows nothing of the loss (F7). There the rank is the cause, and the peer the suspect.
bool FaultErrors::is_given_up_elsewhere(const Failure& failure) const {
  const reference::Program& program = c_.case_.program;
  return reference::reducer_count(program) > 1 && program.options.group_each &&
         failure.rank != failure.reported_by;
}

// Judges what an error that a fault caused must report (F2).
Verdict FaultErrors::judge(const ObservedStep& step, const Failure& failure,
                           UnspecifiedCounts& counts) {
  const auto lacks = [&](const std::string& what) {
    return c_.wrong_step("error", step,
                         "the error does not name " + what + ": " + failure.to_string());
  };
  if (failure.code == Code::kInternal || failure.code == Code::kPoisoned) return lacks("a cause");
  // Only the engine runs a local backward, and the engine knows no rank and no pass.
  if (c_.is_local(step) && failure.code == Code::kUserFailure)
    return Ruling(Unspecified::kLocalBackward).settle(counts);
  if (failure.reported_by != c_.group_rank(step.step, c_.rank_)) return lacks("who reports it");
  const std::uint32_t first = program_.first_reached(step.step);
  const std::uint32_t last = program_.last_reached(step.step);
  if (!program_.is_pass_of(failure, first, last)) return lacks("the pass");
  if (!c_.has_rank(failure)) return lacks("a rank to look at");
  if (!is_own_error(failure.code)) {
    if (failure.bucket == kNone && failure.collective.empty())
      return lacks("the bucket or collective");
    if (failure.bucket != kNone && failure.parameters.empty()) return lacks("a parameter");
  }
  const ProgramErrors::Match bucket = program_.match_bucket(failure, first, last);
  if (bucket == ProgramErrors::Match::kNo) return lacks("the bucket of the parameters named");
  if (bucket == ProgramErrors::Match::kUnknown) counts.note(Unspecified::kLayout);
  if (Verdict verdict = judge_code(step, failure).settle(counts); !verdict.ok()) return verdict;
  Ruling culprit = c_.is_all_payload() ? judge_sender(step, failure) : judge_culprit(step, failure);
  if (Verdict verdict = std::move(culprit).settle(counts); !verdict.ok()) return verdict;
  return judge_suspect(step, failure).settle(counts);
}

// A fault shows as a failure of the group, unless a node threw or a payload was changed. It never
// shows as an error that only the program or its user can make.
Ruling FaultErrors::judge_code(const ObservedStep& step, const Failure& failure) const {
  const auto has = [&](const auto& is) {
    return std::any_of(c_.fatal_.begin(), c_.fatal_.end(),
                       [&](const faults::Fault& fault) { return is(fault.kind); });
  };
  switch (failure.code) {
    case Code::kPeerLost:
    case Code::kTimeout:
    case Code::kTransport:
    case Code::kAborted:
      return Unspecified::kCode;
    case Code::kUserFailure:
      if (has([](faults::Kind kind) { return kind == faults::Kind::kNodeThrows; })) return {};
      break;
    case Code::kCorrupted:
      if (has(faults::is_payload)) return {};
      break;
    default:
      break;
  }
  return c_.wrong_step("error", step,
                       "no fault that fired ends in such an error: " + failure.to_string());
}

// Returns why nobody can tell whom an error has to suspect; nothing where exactly one fault was
// planned, it fired, and nothing else can fail. Two reducers are not judged (F7), because their
// groups need not end at the same rank.
std::optional<Unspecified> FaultErrors::no_suspect(std::uint32_t step) const {
  if (!c_.has_one_reducer()) return Unspecified::kSeveralReducers;
  if (c_.program_fails()) return Unspecified::kFaultsAndErrors;
  if (c_.case_.faults.faults.size() != 1 || c_.fatal_.size() != 1)
    return Unspecified::kSeveralFaults;
  if (is_done_or_dead(step)) return Unspecified::kDoneOrDead;
  return std::nullopt;
}

// Returns the ranks that may be suspected of the only fault; none where nobody can tell. When a
// link broke among more than two ranks, some notice only that others gave up, and the board may
// take one of these for the cause.
std::vector<std::uint32_t> FaultErrors::suspects() const {
  const faults::Fault& fault = c_.fatal_[0];
  if (fault.kind != faults::Kind::kLinkReset) return {fault.rank};
  if (c_.case_.program.world != 2) return {};
  return {fault.rank, 1 - fault.rank};
}

// Where exactly one fault was planned and fired, nobody innocent is suspected, and only a rank
// that has exited is said to have left (F2).
Ruling FaultErrors::judge_suspect(const ObservedStep& step, const Failure& failure) const {
  if (const auto reason = no_suspect(step.step)) return *reason;
  const faults::Fault& fault = c_.fatal_[0];
  const std::string what =
      fmt::format("rank {} is at fault ({})", fault.rank, faults::name_of(fault.kind));
  if (fault.kind != faults::Kind::kRankExit && says_that_one_left(failure))
    return c_.wrong_step("error", step,
                         what + ", and the error says that a rank left: " + failure.to_string());
  // All ranks wait for each other in a cycle, and nobody can tell where it began.
  if (fault.kind == faults::Kind::kMessageStall) return Unspecified::kCycle;
  const bool names_rank = failure.suspect == kNone && !c_.is_over_nccl();
  const int named = names_rank ? failure.rank : failure.suspect;
  if (named == kNone) return Unspecified::kNobodySuspected;
  const std::vector<std::uint32_t> ranks = suspects();
  if (ranks.empty()) return Unspecified::kEndsOfLink;
  const auto may_be_named = [&](int who) {
    return std::any_of(ranks.begin(), ranks.end(),
                       [&](std::uint32_t rank) { return who == c_.group_rank(step.step, rank); });
  };
  if (!may_be_named(named))
    return c_.wrong_step("error", step,
                         what + ", and the error suspects another: " + failure.to_string());
  if (c_.is_over_nccl() || failure.rank == kNone) return {};
  // The receiver finds what was changed; of two frames that changed places there are two receivers.
  if (fault.kind == faults::Kind::kPayloadSwap) return Unspecified::kEndsOfLink;
  const bool is_finder = faults::is_payload(fault.kind) &&
                         failure.rank == c_.group_rank(step.step, receiver_of(fault, c_.case_));
  if (faults::is_payload(fault.kind) ? is_finder : may_be_named(failure.rank)) return {};
  return c_.wrong_step("error", step,
                       what + ", and the error has another cause: " + failure.to_string());
}

bool FaultErrors::says_that_one_left(const Failure& failure) {
  const auto says = [](const std::string& text) {
    return text.find("left the group") != std::string::npos;
  };
  return says(failure.detail) || std::any_of(failure.later.begin(), failure.later.end(), says);
}

// Over NCCL a rank that has completed the collective, as the root of a broadcast may, reports
// nothing. The stalled rank knows that all have entered, and cannot tell a rank that is done from
// one that died afterwards.
bool FaultErrors::is_done_or_dead(std::uint32_t step) const {
  if (!c_.is_over_nccl()) return false;
  return std::any_of(
      c_.observation_.ranks.begin(), c_.observation_.ranks.end(),
      [&](const auto& rank) { return rank.steps.size() > step && rank.steps[step].status.ok(); });
}

bool FaultErrors::tells_culprit(const faults::Fault& fault) {
  return fault.kind == faults::Kind::kRankExit || fault.kind == faults::Kind::kNodeThrows ||
         fault.kind == faults::Kind::kOperationError || fault.kind == faults::Kind::kCallError;
}

// One of the faulty ranks must be the cause, if the culprit of every fault is known.
Ruling FaultErrors::judge_culprit(const ObservedStep& step, const Failure& failure) const {
  std::vector<int> culprits;
  std::string names;
  for (const faults::Fault& fault : c_.fatal_) {
    if (!reaches(c_.case_, c_.expectation_, c_.observation_, fault, c_.rank_, step.step)) continue;
    const bool is_own = fault.rank == c_.rank_ && fault.kind != faults::Kind::kNodeThrows;
    if (!tells_culprit(fault) || is_own) return {};  // judge_suspect() says more of these
    culprits.push_back(c_.group_rank(step.step, fault.rank));
    names += fmt::format("{}rank {} ({})", names.empty() ? "" : " or ", fault.rank,
                         faults::name_of(fault.kind));
  }
  const auto is_culprit = [&](int rank) {
    return rank != kNone && std::find(culprits.begin(), culprits.end(), rank) != culprits.end();
  };
  if (is_culprit(failure.rank)) return judge_pass_of_node(step, failure);
  // Over NCCL the error may not name a lost peer: see has_rank().
  const bool is_nameless =
      failure.suspect == kNone && c_.is_over_nccl() && failure.code == Code::kPeerLost;
  if (is_nameless && failure.rank == kNone) return Unspecified::kNamelessPeer;
  const bool is_suspected = is_nameless || is_culprit(failure.suspect);
  if ((is_given_up_elsewhere(failure) && is_suspected) || is_closed_elsewhere(failure))
    return Unspecified::kOtherGroup;
  return c_.wrong_step(
      "error", step,
      fmt::format("{} is the cause, and the error names another: {}", names, failure.to_string()));
}

// A node that throws fails its own pass, and no other.
Ruling FaultErrors::judge_pass_of_node(const ObservedStep& step, const Failure& failure) const {
  if (failure.code != Code::kUserFailure) return {};
  // A rank without inputs runs the passes of others (S2).
  if (c_.fatal_.size() != 1 || c_.joins()) return Unspecified::kPassOfNode;
  const std::uint32_t thrown = c_.fatal_[0].step;
  if (c_.case_.program.steps[thrown].kind != reference::PassKind::kSynced)
    return Unspecified::kPassOfNode;
  if (program_.is_pass_of(failure, thrown, thrown)) return {};
  return c_.wrong_step("error", step,
                       fmt::format("a node threw in step {}, and the error tells another pass: {}",
                                   thrown, failure.to_string()));
}

// Every rank must report the corruption, and name the sender (F3).
Ruling FaultErrors::judge_sender(const ObservedStep& step, const Failure& failure) const {
  if (is_closed_elsewhere(failure)) return Unspecified::kOtherGroup;
  if (failure.code != Code::kCorrupted)
    return c_.wrong_step(
        "error", step,
        "what travelled was changed, and the error does not say so: " + failure.to_string());
  const bool is_named = std::any_of(c_.fatal_.begin(), c_.fatal_.end(), [&](const auto& fault) {
    return failure.suspect == c_.group_rank(step.step, fault.rank % c_.case_.program.world);
  });
  if (is_named) return {};
  return c_.wrong_step(
      "error", step,
      "the error does not name the sender of what was changed: " + failure.to_string());
}

// A rank may wait in the group of one reducer while a peer's group of another reducer ends and
// closes (F7). Over a transport that closes silently, the others notice only that their next peer
// is lost.
bool FaultErrors::is_closed_elsewhere(const Failure& failure) const {
  const reference::Program& program = c_.case_.program;
  return c_.observation_.closes_silently && reference::reducer_count(program) > 1 &&
         program.options.group_each && failure.code == Code::kPeerLost;
}

}  // namespace lockstep::properties
