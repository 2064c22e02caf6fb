#include "properties/oracle/fault_errors.h"

#include <algorithm>

#include "properties/case/hook_error.h"

namespace lockstep::properties {
namespace {

constexpr Among kNobody = Among::of({kNone});
constexpr Among kPeerLost = Among::of({Code::kPeerLost});

// Whether the error of the fault tells which rank is at fault.
bool tells_culprit(const faults::Fault& fault) {
  return faults::may_end_process(fault.kind) || is_of_user(fault) ||
         fault.kind == faults::Kind::kOperationError || fault.kind == faults::Kind::kCallError ||
         fault.kind == faults::Kind::kConnectError || fault.kind == faults::Kind::kMemoryRefused ||
         fault.kind == faults::Kind::kUserAbort;
}

void add_rank(Among& ranks, int rank) {
  if (rank != kNone) ranks.add(rank);
}

}  // namespace

bool FaultErrors::reaches(const faults::Fault& fault, std::uint32_t step) const {
  return properties::reaches(c_.case_, c_.expectation_, c_.observation_, fault, c_.rank_, step);
}

// Whether the reset before the step may have failed on other ranks, after this one had gone on. A
// rank whose reset fails ends its group, and tells no cause to those who are in a pass already.
bool FaultErrors::fails_in_reset(std::uint32_t step) const {
  return std::any_of(c_.fatal_.begin(), c_.fatal_.end(), [&](const faults::Fault& fault) {
    return fault.in_reset && reaches(fault, step);
  });
}

// Whether each of several reducers has a group of its own.
bool FaultErrors::has_groups() const {
  return !c_.has_one_reducer() && c_.case_.program.options.group_each;
}

void FaultErrors::allow_in_step(std::uint32_t step, std::vector<AllowedError>& errors) const {
  if (std::none_of(c_.fatal_.begin(), c_.fatal_.end(),
                   [&](const auto& fault) { return reaches(fault, step); }))
    return;
  const bool is_local = c_.is_local(step);
  AllowedError allowed{.faults = c_.fatal_};
  Requirements& it = allowed.requirements;
  require_code(is_local, it);
  require_names(step, it);
  if (c_.is_all_payload())
    require_sender(step, it);
  else
    require_cause(step, it);
  require_hook(step, it);
  require_abort(step, it);
  require_suspect(step, it);
  errors.push_back(std::move(allowed));
  // In a local step the forward, too, may report the failure of a peer.
  const Among calls = is_local ? Among{} : c_.local_calls(c_.rank_, step);
  Among codes = Among::none();
  for (const faults::Fault& fault : c_.fatal_)
    if (may_be_of_user(fault))
      codes = codes | Among::of({is_of_user(fault) ? Code::kUserFailure : Code::kOutOfMemory});
  if (calls.is_empty() || codes.is_empty()) return;
  // Only the engine runs a local backward, and the engine knows no rank and no pass.
  AllowedError local{.faults = c_.fatal_};
  local.requirements.allow(Must::kCode,
                           {.codes = codes, .calls = calls, .open = Unspecified::kLocalBackward});
  errors.push_back(std::move(local));
}

void FaultErrors::require_group_code(Requirements& it) const {
  it.allow(Must::kCode,
           {.codes = Among::of({Code::kPeerLost, Code::kTimeout, Code::kTransport, Code::kAborted}),
            .open = Unspecified::kCode});
}

// Returns why nobody can tell whom a rank suspects that does not have all reports.
std::optional<Unspecified> FaultErrors::no_suspect_without_reports(std::uint32_t step) const {
  if (c_.has_no_store() || c_.program_fails() || !c_.has_one_reducer() || c_.is_over_nccl())
    return Unspecified::kStore;
  const bool is_known = std::all_of(c_.fatal_.begin(), c_.fatal_.end(), [](const auto& fault) {
    return tells_culprit(fault) || fault.kind == faults::Kind::kOperationStall;
  });
  if (!is_known || fails_in_reset(step)) return Unspecified::kStore;
  return std::nullopt;
}

// A rank whose report is lost is silent to the others, and may be suspected like one that has
// stopped. Nobody else is.
void FaultErrors::allow_without_reports(std::uint32_t step,
                                        std::vector<AllowedError>& errors) const {
  if (c_.broken_stores_.empty()) return;
  AllowedError allowed{.because = "a store lost reports", .faults = c_.broken_stores_};
  Requirements& it = allowed.requirements;
  require_group_code(it);
  require_names(step, it);
  if (const auto reason = no_suspect_without_reports(step)) {
    it.allow(Must::kSuspect, {.open = *reason});
  } else {
    Among ranks = places(step);
    for (const faults::Fault& fault : c_.broken_stores_)
      add_rank(ranks, c_.group_rank(step, fault.rank));
    it.allow(Must::kSuspect, {.suspects = ranks, .open = Unspecified::kStore});
    it.allow(Must::kSuspect, {.causes = ranks, .suspects = kNobody, .open = Unspecified::kStore});
  }
  errors.push_back(std::move(allowed));
}

// Returns whether a call of NCCL on this rank is the only thing that fails in the case. Then the
// rank reports the error of that call, and no other one.
bool FaultErrors::is_own_call() const {
  return c_.fatal_.size() == 1 && c_.fatal_[0].kind == faults::Kind::kCallError &&
         c_.fatal_[0].rank == c_.rank_ && c_.has_one_reducer() && !c_.program_fails() &&
         !c_.joins();
}

// A fault shows as a failure of the group, unless a node threw or a payload was changed. It never
// shows as an error that only the program or its user can make.
void FaultErrors::require_code(bool is_local, Requirements& it) const {
  if (is_own_call())
    it.allow(Must::kCode, {.codes = Among::of({Code::kTransport})});
  else
    require_group_code(it);
  const auto& fatal = c_.fatal_;
  if (!is_local && std::any_of(fatal.begin(), fatal.end(), is_of_user))
    it.allow(Must::kCode, {.codes = Among::of({Code::kUserFailure})});
  if (std::any_of(fatal.begin(), fatal.end(),
                  [](const faults::Fault& fault) { return faults::is_payload(fault.kind); }))
    it.allow(Must::kCode, {.codes = Among::of({Code::kCorrupted})});
  for (const faults::Fault& fault : fatal) {
    if (fault.kind != faults::Kind::kUserAbort) continue;
    it.allow(Must::kCode, {.codes = Among::of({user_abort_error(fault)})});
    if (aborts_reducers(fault, c_.rank_))
      it.allow(Must::kCode, {.codes = Among::of({Code::kPoisoned})});
  }
  const auto refuses_memory = [](const faults::Fault& fault) {
    return fault.kind == faults::Kind::kNodeMemory || fault.kind == faults::Kind::kMemoryRefused;
  };
  if (std::any_of(fatal.begin(), fatal.end(), refuses_memory))
    it.allow(Must::kCode, {.codes = Among::of({Code::kOutOfMemory})});
}

void FaultErrors::require_names(std::uint32_t step, Requirements& it) const {
  it.allow(Must::kReporter, {.reporters = Among::of({c_.group_rank(step, c_.rank_)})});
  const std::uint32_t first = reference::first_reached(c_.run(), c_.rank_, step);
  const std::uint32_t last = reference::last_reached(c_.run(), c_.rank_, step);
  it.allow(Must::kPass, {.passes = program_.passes_of(first, last)});
  require_place(it);
  program_.require_bucket(first, last, it);
}

void FaultErrors::require_place(Requirements& it) const {
  it.allow(Must::kRank, {.causes = ~kNobody});
  it.allow(Must::kRank, {.suspects = ~kNobody});
  if (c_.is_over_nccl() && c_.case_.program.world > 2)  // NCCL does not say which peer it has lost
    it.allow(Must::kRank, {.codes = kPeerLost, .open = Unspecified::kNamelessPeer});
  it.allow(Must::kPlace, {.codes = kOwnErrors});
  // A user may abort between two passes.
  if (c_.may_have_aborted()) it.allow(Must::kPlace, {.with = kIsOwn});
  it.allow(Must::kPlace, {.with = kNamesBucket});
  it.allow(Must::kPlace, {.with = kNamesCollective});
}

// One of the faulty ranks must be the cause, if the culprit of every fault is known. Of the others
// require_suspect() says more.
void FaultErrors::require_cause(std::uint32_t step, Requirements& it) const {
  if (fails_in_reset(step)) {
    it.allow(Must::kCause, {.open = Unspecified::kPeerLeft});
    return;
  }
  Among culprits = Among::none();
  for (const faults::Fault& fault : c_.fatal_) {
    if (!reaches(fault, step)) continue;
    const bool is_own =
        fault.rank == c_.rank_ && !may_be_of_user(fault) && fault.kind != faults::Kind::kUserAbort;
    if (!tells_culprit(fault) || is_own) return;
    add_rank(culprits, c_.group_rank(step, fault.rank));
  }
  it.allow(Must::kCause, {.causes = culprits});
  if (c_.is_over_nccl())
    it.allow(Must::kCause, {.codes = kPeerLost,
                            .causes = kNobody,
                            .suspects = kNobody,
                            .open = Unspecified::kNamelessPeer});
  // A rank that has lost a peer in the group of one reducer aborts the other reducer, whose own
  // group knows nothing of the loss (F7). There the rank is the cause, and the peer the suspect.
  if (has_groups()) {
    it.allow(Must::kCause, {.causes = ~culprits,
                            .suspects = culprits,
                            .without = kIsOwn,
                            .open = Unspecified::kOtherGroup});
    if (c_.is_over_nccl())
      it.allow(Must::kCause, {.codes = kPeerLost,
                              .causes = ~culprits,
                              .suspects = kNobody,
                              .without = kIsOwn,
                              .open = Unspecified::kOtherGroup});
    // A rank may wait in the group of one reducer while a peer's group of another reducer ends and
    // closes (F7). Over a transport that closes silently, the others notice only that their next
    // peer is lost.
    if (c_.observation_.closes_silently)
      it.allow(Must::kCause, {.codes = kPeerLost, .open = Unspecified::kOtherGroup});
  }
  require_throw_pass(culprits, it);
}

// A node that throws fails its own pass, and no other.
void FaultErrors::require_throw_pass(Among culprits, Requirements& it) const {
  constexpr Among kUser = Among::of({Code::kUserFailure});
  it.allow(Must::kThrowPass, {.codes = ~kUser});
  it.allow(Must::kThrowPass, {.causes = ~culprits});
  const std::uint32_t thrown = c_.fatal_[0].step;
  // A rank without inputs runs the passes of others (S2). A local backward has no pass.
  const bool is_unknown = c_.fatal_.size() != 1 || c_.joins() ||
                          c_.fatal_[0].kind == faults::Kind::kUserAbort ||
                          !c_.local_calls(c_.fatal_[0].rank, thrown).is_empty();
  if (is_unknown)
    it.allow(Must::kThrowPass, {.open = Unspecified::kPassOfNode});
  else
    it.allow(Must::kThrowPass, {.passes = program_.passes_of(thrown, thrown)});
}

// Every rank must report the corruption, and name the sender (F3).
void FaultErrors::require_sender(std::uint32_t step, Requirements& it) const {
  constexpr Among kChanged = Among::of({Code::kCorrupted});
  it.allow(Must::kChange, {.codes = kChanged});
  if (has_groups() && c_.observation_.closes_silently)  // as in require_cause()
    it.allow(Must::kChange, {.codes = kPeerLost, .open = Unspecified::kOtherGroup});
  if (fails_in_reset(step))
    it.allow(Must::kChange, {.codes = Among::of({Code::kPeerLost, Code::kAborted}),
                             .open = Unspecified::kPeerLeft});
  Among senders = Among::none();
  for (const faults::Fault& fault : c_.fatal_) add_rank(senders, c_.group_rank(step, fault.rank));
  it.allow(Must::kSender, {.codes = ~kChanged});
  it.allow(Must::kSender, {.suspects = senders});
}

// Whatever the code of a hook's failure, it is a failure of the user on every rank, and keeps its
// text (S4). A future that never ends is a timeout whose cause is the hook's rank.
void FaultErrors::require_hook(std::uint32_t step, Requirements& it) const {
  if (!c_.is_one_hook()) return;
  const Among cause = Among::of({c_.group_rank(step, c_.fatal_[0].rank)});
  if (never_ends(c_.fatal_[0])) {
    if (c_.rank_ != c_.fatal_[0].rank) it.allow(Must::kHook, {.causes = ~cause});
    it.allow(Must::kHook, {.codes = Among::of({Code::kTimeout}), .causes = cause});
    return;
  }
  it.allow(Must::kHook, {.causes = ~cause});
  it.allow(Must::kHook, {.codes = Among::of({Code::kUserFailure}), .with = kHasTextOfHook});
}

// An error names for certain the rank whose user aborted, and keeps the user's text: on that rank,
// and on each peer that reads its report (F5). A rank that no longer uses its group writes no
// report; to its peers it is lost.
void FaultErrors::require_abort(std::uint32_t step, Requirements& it) const {
  if (!c_.is_one_abort()) return;
  const faults::Fault& fault = c_.fatal_[0];
  const Among rank = Among::of({c_.group_rank(step, fault.rank)});
  const Among code = Among::of({user_abort_error(fault)});
  const bool is_own = fault.rank == c_.rank_;
  constexpr std::uint32_t kTold = kIsCertain | kHasTextOfAbort;
  // The rank whose user aborted saw nothing but that, unless its reducer has a second group, which
  // peers that followed may have ended before the user did.
  const bool may_follow = reference::has_backward_group(c_.case_.program.options) &&
                          faults::abort_call(fault) != faults::AbortCall::kReducers;
  const std::uint32_t twice = is_own && !may_follow ? kSaysWhatItSaw : 0u;
  it.allow(Must::kAbort, {.codes = code, .causes = rank, .with = kTold, .without = twice});
  if (aborts_reducers(fault, c_.rank_))  // calls after it are refused
    it.allow(Must::kAbort, {.codes = Among::of({Code::kPoisoned}), .causes = rank, .with = kTold});
  if (is_own) return;
  // A reducer that is destroyed with collectives in flight ends the group by itself.
  const auto& steps = c_.observation_.ranks[fault.rank].steps;
  const bool may_be_in_flight =
      c_.joins() || std::any_of(steps.begin(), steps.end(), [](const ObservedStep& each) {
        return each.is_destroyed && each.launched;
      });
  if (faults::abort_call(fault) == faults::AbortCall::kDestroy && may_be_in_flight)
    it.allow(Must::kAbort, {.codes = Among::of({Code::kAborted}), .causes = rank});
  Among lost = kPeerLost;
  // The group of NCCL tells its peers that a rank has aborted, and leaves the rest to the report.
  if (c_.is_over_nccl()) lost = lost | Among::of({Code::kAborted});
  it.allow(Must::kAbort, {.codes = lost, .causes = rank});
  it.allow(Must::kAbort, {.codes = lost, .causes = kNobody, .suspects = rank});
  // Gloo's group passes on the user's text, in a failure of its own; where a rank reads no report
  // within its grace, because the rank whose user aborted is slow, that remains.
  if (c_.observation_.closes_silently || c_.is_over_nccl()) return;
  it.allow(Must::kAbort,
           {.codes = Among::of({Code::kAborted}), .causes = rank, .with = kHasTextOfAbort});
}

// Returns why nobody can tell whom an error has to suspect; nothing where exactly one fault was
// planned until then, it fired, and nothing else can fail. A fault of a reset that comes later
// excuses nothing. Two reducers are not judged (F7), because their
// groups need not end at the same rank.
std::optional<Unspecified> FaultErrors::no_suspect(std::uint32_t step) const {
  if (!c_.has_one_reducer()) return Unspecified::kSeveralReducers;
  if (c_.program_fails()) return Unspecified::kFaultsAndErrors;
  if (fails_in_reset(step)) return Unspecified::kPeerLeft;
  const auto& plan = c_.case_.faults.faults;
  const auto may_have_acted = [step](const faults::Fault& fault) {
    return !faults::is_store_call(fault.kind) && (!fault.in_reset || fault.step <= step);
  };
  if (std::count_if(plan.begin(), plan.end(), may_have_acted) != 1 ||
      std::count_if(c_.fatal_.begin(), c_.fatal_.end(), may_have_acted) != 1)
    return Unspecified::kSeveralFaults;
  if (is_done_or_dead(step)) return Unspecified::kDoneOrDead;
  return std::nullopt;
}

// Whether the fault cuts its rank off from all others of its group, which are two or more. They
// suspect that rank, and are more than those that it suspects itself.
bool FaultErrors::cuts_off_one(const faults::Fault& fault) const {
  const bool is_silence = fault.kind == faults::Kind::kNetPartition;
  return is_silence && fault.peer == fault.rank && c_.case_.program.world > 2 &&
         reference::group_count(c_.case_.program) == 1;
}

// Returns the ranks that may be suspected of the only fault; none where nobody can tell. When a
// link broke among more than two ranks, some notice only that others gave up, and the board may
// take one of these for the cause.
Among FaultErrors::suspects(std::uint32_t step) const {
  const faults::Fault& fault = c_.fatal_[0];
  // Of two ranks, one that was stopped or cut off, and lives, suspects the other, and nobody can
  // tell which it was.
  const bool is_mutual = c_.case_.program.world == 2 && (fault.kind == faults::Kind::kNodeStop ||
                                                         fault.kind == faults::Kind::kRankLeftOut);
  const bool is_link = !cuts_off_one(fault) && (fault.kind == faults::Kind::kLinkReset ||
                                                faults::is_network(fault.kind) || is_mutual);
  Among ranks = Among::none();
  if (is_link && c_.case_.program.world != 2) return ranks;
  add_rank(ranks, c_.group_rank(step, fault.rank));
  if (is_link) add_rank(ranks, c_.group_rank(step, 1 - fault.rank));
  return ranks;
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

// Where exactly one fault was planned and fired, nobody innocent is suspected, and only a rank
// that has exited is said to have left (F2).
void FaultErrors::require_suspect(std::uint32_t step, Requirements& it) const {
  if (const auto reason = no_suspect(step)) {
    const bool is_known = knows_all_places() && !is_done_or_dead(step);
    if (*reason == Unspecified::kSeveralFaults && is_known)
      require_one_of(step, places(step), it, Reasons(*reason));
    else
      it.allow(Must::kSuspect, {.open = *reason});
    return;
  }
  const faults::Kind kind = c_.fatal_[0].kind;
  if (!faults::may_end_process(kind))
    it.allow(Must::kNobodyLeft, {.without = kMentionsDepartedRank});
  // All ranks wait for each other in a cycle, and nobody can tell where it began.
  if (kind == faults::Kind::kMessageStall) {
    it.allow(Must::kSuspect, {.open = Unspecified::kCycle});
    return;
  }
  require_one_of(step, suspects(step), it, Reasons());
}

// Whether each of several faults acts on one rank alone, so that nobody else may be suspected.
bool FaultErrors::knows_all_places() const {
  return c_.broken_stores_.empty() &&
         std::all_of(c_.fatal_.begin(), c_.fatal_.end(), [](const faults::Fault& fault) {
           return tells_culprit(fault) || fault.kind == faults::Kind::kOperationStall;
         });
}

Among FaultErrors::places(std::uint32_t step) const {
  Among ranks = Among::none();
  for (const faults::Fault& fault : c_.fatal_) add_rank(ranks, c_.group_rank(step, fault.rank));
  return ranks;
}

// Returns whether the case has one fault alone, after which every rank can tell where it was: the
// rank with the fault left no report, or reported an error of its own. Over NCCL a rank that stops
// or fails has entered the collective, and looks like its peers.
bool FaultErrors::marks_one_rank(Reasons open_anyway) const {
  const faults::Kind kind = c_.fatal_[0].kind;
  const bool is_own_end =
      kind == faults::Kind::kOperationStall || kind == faults::Kind::kOperationError;
  return open_anyway == Reasons() &&
         (kind == faults::Kind::kRankExit || (is_own_end && !c_.is_over_nccl()));
}

// Whom an error names is its suspect, or its cause if it has no suspect and the group is none of
// NCCL.
void FaultErrors::require_one_of(std::uint32_t step, Among suspects, Requirements& it,
                                 Reasons open_anyway) const {
  const auto nobody = Unspecified::kNobodySuspected;
  const auto ends = Unspecified::kEndsOfLink;
  const bool is_nccl = c_.is_over_nccl();
  if (!marks_one_rank(open_anyway))
    it.allow(Must::kSuspect,
             {.causes = is_nccl ? Among() : kNobody, .suspects = kNobody, .open = nobody});
  if (suspects.is_empty()) {
    it.allow(Must::kSuspect, {.suspects = ~kNobody, .open = ends});
    if (!is_nccl) it.allow(Must::kSuspect, {.causes = ~kNobody, .open = ends});
    return;
  }
  if (is_nccl) {
    it.allow(Must::kSuspect, {.suspects = suspects, .open = open_anyway});
    // A rank whose call of NCCL failed says so, and its peers name it as the cause. One whose
    // process exited says nothing, and has to be suspected.
    if (!marks_one_rank(open_anyway))
      it.allow(Must::kSuspect, {.causes = suspects, .suspects = kNobody, .open = open_anyway});
    return;
  }
  it.allow(Must::kSuspect, {.causes = kNobody, .suspects = suspects, .open = open_anyway});
  // The receiver finds what was changed; of two frames that changed places there are two receivers.
  const faults::Fault& fault = c_.fatal_[0];
  const bool is_swap = fault.kind == faults::Kind::kPayloadSwap;
  Among finders = Among::none();
  if (faults::is_payload(fault.kind))
    add_rank(finders, c_.group_rank(step, receiver_of(fault, c_.case_)));
  else
    finders = suspects;
  const Among causes = is_swap ? ~kNobody : finders;
  const Reasons open = is_swap ? Reasons(ends) | open_anyway : open_anyway;
  it.allow(Must::kSuspect, {.causes = causes, .suspects = suspects, .open = open});
  it.allow(Must::kSuspect, {.causes = causes & suspects, .suspects = kNobody, .open = open});
}

// Of a rank without inputs (S2).
void FaultErrors::allow_in_join(std::vector<AllowedError>& errors) const {
  if (c_.fatal_.empty() && c_.broken_stores_.empty()) return;
  // A rank whose store failed does not learn why others did.
  AllowedError allowed{.faults = c_.fatal_.empty() ? c_.broken_stores_ : c_.fatal_};
  Requirements& it = allowed.requirements;
  require_place(it);
  it.allow(Must::kParameters, {.without = kNamesBucket});
  it.allow(Must::kParameters, {.with = kNamesParameters});
  if (!c_.broken_stores_.empty())
    it.allow(Must::kCause, {.open = Unspecified::kStore});
  else if (c_.fatal_.size() != 1)
    it.allow(Must::kCause, {.open = Unspecified::kSeveralFaults});
  else if (c_.program_fails())
    it.allow(Must::kCause, {.open = Unspecified::kFaultsAndErrors});
  else if (!is_of_user(c_.fatal_[0]) && c_.fatal_[0].kind != faults::Kind::kUserAbort)
    it.allow(Must::kCause, {.open = Unspecified::kCulpritOfJoin});
  else
    it.allow(Must::kCause, {.causes = Among::of({c_.group_rank(0, c_.fatal_[0].rank)})});
  errors.push_back(std::move(allowed));
}

// Whether every payload fault of the plan that acts on this rank has certainly fired.
bool FaultErrors::was_deceived() const {
  const auto& plan = c_.case_.faults.faults;
  return std::any_of(plan.begin(), plan.end(), [&](const faults::Fault& fault) {
    if (!faults::is_payload(fault.kind)) return false;
    const auto planned = static_cast<std::uint64_t>(
        std::count_if(plan.begin(), plan.end(),
                      [&](const faults::Fault& other) { return other.kind == fault.kind; }));
    return receiver_of(fault, c_.case_) == c_.rank_ &&
           c_.observation_.fired.counts[static_cast<std::size_t>(fault.kind)] == planned;
  });
}

// A rank whose hook has failed must say so, and a rank that received other bytes than were sent
// must notice it (F3). If other things fail as well, it may fail because of those first.
const char* FaultErrors::must_fail() const {
  if (c_.is_one_hook()) {
    const bool is_it = c_.case_.faults.faults.size() == 1 && c_.fatal_[0].rank == c_.rank_;
    return is_it ? "its communication hook failed, and no call did" : nullptr;
  }
  if (!c_.is_all_payload() || c_.program_fails() || program_.may_mismatch() || !was_deceived())
    return nullptr;
  return "what it received was not what was sent, and it did not notice";
}

}  // namespace lockstep::properties
