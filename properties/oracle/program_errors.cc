#include "properties/oracle/program_errors.h"

#include <algorithm>

namespace lockstep::properties {

using reference::Error;

namespace {

// Returns whether several reducers have one group.
bool share_group(const reference::Program& program) {
  return reference::reducer_count(program) > 1 && !program.options.group_each;
}

Code code_of(Error error) {
  switch (error) {
    case Error::kIncomplete: return Code::kIncomplete;
    case Error::kReadyTwice: return Code::kReadyTwice;
    case Error::kSecondBackward: return Code::kSecondBackward;
    case Error::kUsageChanged: return Code::kUsageChanged;
    case Error::kRequiresGrad: return Code::kRequiresGrad;
    case Error::kUnevenInputs: return Code::kUnevenInputs;
    case Error::kForwardInBackward: return Code::kInvalidArgument;
    case Error::kAbsent:  // see allow()
    case Error::kForeign:
    case Error::kNone: break;
  }
  return Code::kOk;
}

Names names_of(reference::ReportableError::Naming naming) {
  switch (naming) {
    case reference::ReportableError::Naming::kAll: return Names::kExactly;
    case reference::ReportableError::Naming::kOne: return Names::kOneOf;
    case reference::ReportableError::Naming::kAnything: break;
  }
  return Names::kAnything;
}

}  // namespace

// A rank that is ahead is still in the same group, even if all ranks recover before the others
// reach its step. A peer without inputs receives the announcement of the next pass (S2), and the
// user of a peer may abort behind a pass whose last sum this rank still waits for.
Among ProgramErrors::passes_of(std::uint32_t first, std::uint32_t last) const {
  Among passes = Among::none();
  const std::uint32_t begin = reference::begin_of_group(c_.run(), first);
  const bool may_be_next =
      c_.joins() || std::any_of(c_.fatal_.begin(), c_.fatal_.end(), [&](const auto& fault) {
        return fault.kind == faults::Kind::kUserAbort && fault.rank != c_.rank_ &&
               c_.is_peer(c_.rank_, fault.rank);
      });
  c_.each_share([&](const Share& share) {
    for (std::uint32_t at = first; at <= last; ++at)
      passes.add(reference::pass_number(share, at, begin));
    if (may_be_next && last < share.steps.size() && share.steps[last].is_reduced)
      passes.add(reference::pass_number(share, last, begin) + 1);
  });
  return passes;
}

// Those of any step, and those that would have followed in its group. For a rank that a fault
// ended, nobody knows how many of its passes were shadowed.
Among ProgramErrors::passes_of_join() const {
  Among passes = Among::none();
  if (!c_.fatal_.empty()) {
    passes.add(0);
    std::int64_t synced = 0;
    for (const auto& step : c_.case_.program.steps)
      if (step.kind == reference::PassKind::kSynced) passes.add(++synced);
    return passes;
  }
  for (std::uint32_t at = 0; at < c_.expectation_.steps.size(); ++at) {
    const std::uint32_t begin = reference::begin_of_group(c_.run(), at);
    c_.each_share([&](const Share& share) {
      const std::int64_t number = reference::pass_number(share, at, begin);
      passes.add(number);
      if (share.steps[at].is_reduced) passes.add(number + 1);
    });
  }
  return passes;
}

// If the buckets follow an order that no rank reported, because the step of the rebuild failed,
// their layout is unknown (B2).
bool ProgramErrors::knows_layout(const Share& share, std::uint32_t step) const {
  if (share.steps[step].layout == 0) return true;
  const std::uint32_t begin = reference::begin_of_group(c_.run(), step);
  const auto tells = [&](const ObservedStep& each) {
    return begin <= each.step && each.step <= step && !each.rebuilt_order.empty();
  };
  const auto& ranks = c_.observation_.ranks;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (c_.is_peer(r, c_.rank_) && std::any_of(ranks[r].steps.begin(), ranks[r].steps.end(), tells))
      return true;
  return false;
}

void ProgramErrors::require_bucket(std::uint32_t first, std::uint32_t last,
                                   Requirements& requirements) const {
  requirements.allow(Must::kBucket, {.without = kNamesBucket | kNamesParameters});
  std::vector<const std::vector<reference::ExpectedBucket>*> layouts;
  bool is_unreported = false;
  const auto steps = static_cast<std::uint32_t>(c_.expectation_.steps.size());
  for (std::uint32_t at = first; at <= last && at < steps; ++at)
    c_.each_share([&](const Share& share) {
      const auto* layout = &reference::buckets_of(share, share.steps[at]);
      if (!knows_layout(share, at))
        is_unreported = true;
      else if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end())
        layouts.push_back(layout);
    });
  for (const auto* layout : layouts) requirements.allow(Must::kBucket, {.layout = layout});
  if (is_unreported)
    requirements.allow(Must::kBucket, {.with = kNamesBucket, .open = Unspecified::kLayout});
}

// If two reducers reduce after backward, they run one after the other, unless one of them must wait
// for a further backward.
bool may_mismatch(const reference::Program& program) {
  if (!share_group(program)) return false;
  if (program.options.launch == reference::Launch::kOverlapped) return true;
  return std::any_of(program.steps.begin(), program.steps.end(), [](const auto& step) {
    return std::any_of(step.variants.begin(), step.variants.end(),
                       [](const auto& pass) { return pass.backwards.size() > 1; });
  });
}

// They do not run one after the other either if one of them fails.
bool ProgramErrors::may_mismatch() const {
  const reference::Program& program = c_.case_.program;
  return properties::may_mismatch(program) || (share_group(program) && c_.program_fails());
}

void ProgramErrors::allow_in_step(std::uint32_t step, std::vector<AllowedError>& errors) const {
  const Among reporters = Among::of({c_.group_rank(step, c_.rank_)});
  bool may_lose_peer = false;
  for (const auto& error : reference::reportable_errors(c_.run(), c_.rank_, step)) {
    errors.push_back(allow(error));
    errors.back().requirements.allow(Must::kReporter, {.reporters = reporters});
    may_lose_peer = may_lose_peer || !reporters.has(error.culprit);
  }
  if (c_.observation_.recovers || !may_lose_peer) return;
  errors.push_back({.because = "a peer fails, whose group ends without a reason"});
  errors.back().requirements.allow(
      Must::kCode,
      {.codes = Among::of({Code::kAborted, Code::kPeerLost}), .open = Unspecified::kPeerLeft});
}

void ProgramErrors::allow_in_join(std::vector<AllowedError>& errors) const {
  for (const auto& error : reference::reportable_errors_of_join(c_.run(), c_.rank_))
    errors.push_back(allow(error));
}

AllowedError ProgramErrors::allow(const reference::ReportableError& error) const {
  AllowedError allowed{.because = "the program must fail"};
  Requirements& it = allowed.requirements;
  // The first of the others to time out closes its connections, and the rest may see no more.
  const Among codes = error.error == Error::kAbsent
                          ? Among::of({Code::kTimeout, Code::kPeerLost, Code::kAborted})
                          : Among::of({code_of(error.error)});
  it.allow(Must::kCode, {.codes = codes});
  // A subject without recovery tells its peers nothing: each suspects the one that it waits for.
  if (const bool is_absent = error.error == Error::kAbsent;
      !is_absent || c_.observation_.recovers) {
    it.allow(Must::kCause, {.causes = Among::of({error.culprit})});
    if (is_absent) it.allow(Must::kSuspect, {.suspects = Among::of({error.culprit})});
  }
  if (error.call)
    it.allow(Must::kCall, {.calls = Among::of({static_cast<std::int32_t>(*error.call)})});
  it.allow(Must::kPass, {.passes = Among::of({error.pass})});
  if (const Names names = names_of(error.naming); names != Names::kAnything)
    it.allow(Must::kParameters, {.names = names, .parameters = error.parameters});
  // A peer names the bucket in which it waited, also where the cause names no parameter.
  it.allow(Must::kBucket, {.without = kNamesParameters});
  const Share& share =
      reference::share_of(c_.case_.program, c_.expectation_, c_.rank_, error.reducer);
  if (knows_layout(share, error.step))
    it.allow(Must::kBucket, {.layout = &reference::buckets_of(share, share.steps[error.step])});
  else
    it.allow(Must::kBucket, {.with = kNamesBucket, .open = Unspecified::kLayout});
  return allowed;
}

}  // namespace lockstep::properties
