#include "properties/oracle/allowed_outcomes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "properties/case/hook_error.h"

namespace lockstep::properties {
namespace {

bool is_collective(const std::string& name) {
  return name == "all_reduce" || name == "broadcast" || name == "all_gather";
}

bool mentions_departed_rank(const Failure& failure) {
  const auto says = [](const std::string& text) {
    return text.find("left the group") != std::string::npos;
  };
  return says(failure.detail) || std::any_of(failure.later.begin(), failure.later.end(), says);
}

bool says_what_it_saw(const Failure& failure) {
  if (failure.later.empty()) return false;
  const std::string own = fmt::format("rank {} saw: ", failure.reported_by);
  return std::any_of(failure.later.begin(), failure.later.end(),
                     [&](const std::string& line) { return line.starts_with(own); });
}

std::uint32_t facts_of(const Failure& failure) {
  std::uint32_t facts = 0;
  const auto note = [&](Fact fact, bool holds) { facts |= holds ? fact : 0u; };
  note(kIsOwn, failure.rank == failure.reported_by);
  note(kNamesCollective, !failure.collective.empty());
  note(kKnowsCollective, is_collective(failure.collective));
  note(kNamesSequence, failure.sequence >= 0);
  note(kNamesBucket, failure.bucket != kNone);
  note(kNamesParameters, !failure.parameters.empty());
  note(kMentionsDepartedRank, mentions_departed_rank(failure));
  note(kHasTextOfHook, failure.detail.find(kHookErrorText) != std::string::npos);
  note(kSaysWhatItSaw, says_what_it_saw(failure));
  note(kIsCertain, failure.definite);
  note(kHasTextOfAbort, failure.detail.find(kAbortText) != std::string::npos);
  return facts;
}

std::string name(std::uint32_t parameter) { return fmt::format("p{}", parameter); }

bool names(const std::vector<std::string>& named, std::uint32_t parameter) {
  return std::find(named.begin(), named.end(), name(parameter)) != named.end();
}

bool matches_names(Names how, const std::vector<std::uint32_t>& parameters,
                   const std::vector<std::string>& named) {
  const auto is_named = [&](std::uint32_t p) { return names(named, p); };
  if (how == Names::kOneOf)
    return named.size() == 1 && std::any_of(parameters.begin(), parameters.end(), is_named);
  return named.size() == parameters.size() &&
         std::all_of(parameters.begin(), parameters.end(), is_named);
}

// Whether the parameters that the failure names are those of the bucket that it names: the first
// one of an error that a rank makes by itself, and all of them otherwise.
bool matches_bucket(const reference::Program& program,
                    const std::vector<reference::ExpectedBucket>& layout, const Failure& failure) {
  const auto index = static_cast<std::size_t>(failure.bucket);
  if (failure.bucket < 0 || index >= layout.size() || failure.parameters.empty()) return false;
  const auto& members = layout[index].parameters;
  if (!kOwnErrors.has(failure.code) || failure.code == Code::kUserFailure)
    return std::equal(members.begin(), members.end(), failure.parameters.begin(),
                      failure.parameters.end(),
                      [](std::uint32_t p, const std::string& named) { return named == name(p); });
  for (std::uint32_t p = 0; p < program.parameters.size(); ++p)
    if (failure.parameters[0] == name(p))
      return std::find(members.begin(), members.end(), reference::original_of(program, p)) !=
             members.end();
  return false;
}

// ---- Words ----

using Word = std::function<std::string(std::int64_t)>;

std::string any_of(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " or "));
}

// "rank 1 or rank 2", or "any but rank 1".
std::string words_of(Among among, const Word& word) {
  constexpr std::int64_t kLast = 125;
  const bool is_rest = among.has(kLast + 1);
  const Among listed = is_rest ? ~among : among;
  std::vector<std::string> words;
  for (std::int64_t number = kNone; number <= kLast; ++number)
    if (listed.has(number)) words.push_back(word(number));
  if (words.empty()) return is_rest ? "any" : "impossible";
  return (is_rest ? "any but " : "") + any_of(words);
}

// "'timeout' or 'aborted'"; the errors that ranks make by themselves are not listed.
std::string words_of_codes(Among codes) {
  const auto word = [](std::int64_t code) {
    return fmt::format("'{}'", lockstep::name_of(static_cast<Code>(code)));
  };
  if (codes == ~kOwnErrors) return "an error of the group";
  const Among lacking = kOwnErrors & ~codes;
  const bool is_own = (codes & ~kOwnErrors).is_empty() && codes.has(Code::kIncomplete) &&
                      codes.has(Code::kUsageChanged);
  if (!is_own) return words_of(codes, word);
  return "a rank's own error" + (lacking.is_empty() ? "" : " but " + words_of(lacking, word));
}

std::string numbered(const char* what, std::int64_t number) {
  return number == kNone ? fmt::format("no {}", what) : fmt::format("{} {}", what, number);
}

std::string words_of_facts(const ErrorPattern& pattern) {
  constexpr std::array<std::pair<Fact, std::pair<const char*, const char*>>, 13> kWords = {{
      {kIsOwn, {"reported by its cause", "reported by another rank than its cause"}},
      {kHadLaunched, {"after a collective was started", "before any collective"}},
      {kRefusesWork, {"the reducer then refuses work", "the reducer then stays usable"}},
      {kNamesCollective, {"naming a collective", "naming no collective"}},
      {kKnowsCollective, {"that exists", "that does not exist"}},
      {kNamesSequence, {"with its sequence number", "without a sequence number"}},
      {kNamesBucket, {"naming a bucket", "naming no bucket"}},
      {kNamesParameters, {"naming parameters", "naming no parameter"}},
      {kMentionsDepartedRank, {"saying that a rank left", "not saying that a rank left"}},
      {kHasTextOfHook, {"with the text of the hook", "without the text of the hook"}},
      {kSaysWhatItSaw, {"saying what this rank saw", "not saying what this rank saw"}},
      {kIsCertain, {"saying that the cause is certain", "leaving the cause in doubt"}},
      {kHasTextOfAbort, {"with the text of the user", "without the text of the user"}},
  }};
  std::vector<std::string> words;
  for (const auto& [fact, both] : kWords) {
    if ((pattern.with & fact) != 0) words.emplace_back(both.first);
    if ((pattern.without & fact) != 0) words.emplace_back(both.second);
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string words_of(Reasons open) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < kUnspecifiedReasons; ++i)
    if (open.has(static_cast<Unspecified>(i)))
      words.emplace_back(name_of(static_cast<Unspecified>(i)));
  return words.empty() ? "" : fmt::format("unspecified: {}", fmt::join(words, ", "));
}

std::string words_of(const std::vector<reference::ExpectedBucket>& layout) {
  std::vector<std::string> words;
  for (std::size_t bucket = 0; bucket < layout.size(); ++bucket)
    words.push_back(
        fmt::format("bucket {} (p{})", bucket, fmt::join(layout[bucket].parameters, " p")));
  return any_of(words);
}

}  // namespace

void Reasons::note_in(UnspecifiedCounts& counts) const {
  for (std::size_t i = 0; i < kUnspecifiedReasons; ++i)
    if (has(static_cast<Unspecified>(i))) counts.note(static_cast<Unspecified>(i));
}

RaisedError raised_in(const reference::Program& program, const ObservedStep& step) {
  RaisedError error{program, step.status.failure(), step.failed_call,
                    facts_of(step.status.failure())};
  if (step.launched) error.facts |= kHadLaunched;
  if (step.poisoned) error.facts |= kRefusesWork;
  return error;
}

RaisedError raised_in_join(const reference::Program& program, const Failure& failure) {
  return {program, failure, kNone, facts_of(failure)};
}

bool ErrorPattern::matches(const RaisedError& error) const {
  const Failure& failure = error.failure;
  if (!codes.has(failure.code) || !causes.has(failure.rank)) return false;
  if (!suspects.has(failure.suspect) || !reporters.has(failure.reported_by)) return false;
  if (!passes.has(failure.pass) || !calls.has(error.call)) return false;
  if ((error.facts & with) != with || (error.facts & without) != 0) return false;
  if (names != Names::kAnything && !matches_names(names, *parameters, failure.parameters))
    return false;
  return layout == nullptr || matches_bucket(error.program, *layout, failure);
}

bool ErrorPattern::is_possible() const {
  return !codes.is_empty() && !causes.is_empty() && !suspects.is_empty() && !reporters.is_empty() &&
         !passes.is_empty() && !calls.is_empty();
}

std::string ErrorPattern::to_string() const {
  std::vector<std::string> words;
  const auto note = [&](const char* before, Among among, const Word& word) {
    if (!among.is_all()) words.push_back(before + words_of(among, word));
  };
  const auto rank = [](std::int64_t number) { return numbered("rank", number); };
  if (!codes.is_all()) words.push_back(words_of_codes(codes));
  note("of ", causes, rank);
  note("suspecting ", suspects, rank);
  note("reported by ", reporters, rank);
  note("in ", passes, [](std::int64_t number) { return numbered("pass", number); });
  note("in ", calls, [](std::int64_t call) {
    return call < 0 ? std::string("a forward") : fmt::format("backward call {}", call);
  });
  if (const std::string facts = words_of_facts(*this); !facts.empty()) words.push_back(facts);
  if (names != Names::kAnything && parameters->empty()) words.emplace_back("naming no parameter");
  if (names != Names::kAnything && !parameters->empty())
    words.push_back(fmt::format("naming {}p{}", names == Names::kOneOf ? "one of " : "",
                                fmt::join(*parameters, " p")));
  if (layout != nullptr) words.push_back("naming " + words_of(*layout));
  if (words.empty()) words.emplace_back("anything");
  std::string text = fmt::format("{}", fmt::join(words, ", "));
  if (open.count() > 0) text += fmt::format(" ({})", words_of(open));
  return text;
}

struct MustWords {
  Must must;
  const char* name;
  const char* text;
};
constexpr MustWords kMustWords[] = {
    {Must::kWait, "start", "come before any collective is started, as the backward has not ended"},
    {Must::kState, "state", "leave the reducer as the contract says"},
    {Must::kForm, "form", "name an existing collective with its sequence number, or none"},
    {Must::kOwnView, "own view", "say what this rank saw itself"},
    {Must::kCode, "code", "have a code that a cause explains"},
    {Must::kReporter, "reporter", "name who reports it"},
    {Must::kCall, "call", "come in the call that is expected"},
    {Must::kPass, "pass", "name the pass"},
    {Must::kRank, "rank", "name a rank to look at"},
    {Must::kPlace, "place", "name the bucket or collective"},
    {Must::kParameters, "parameters", "name the parameters"},
    {Must::kBucket, "bucket", "name the bucket of the parameters named"},
    {Must::kCause, "cause", "name the rank that is the cause"},
    {Must::kChange, "change", "say that a payload was changed on its way"},
    {Must::kSender, "sender", "name the sender of what was changed"},
    {Must::kThrowPass, "pass of the node", "name the pass in which the node threw"},
    {Must::kHook, "hook", "say that the communication hook failed"},
    {Must::kAbort, "abort", "say for certain which rank's user aborted, with the user's code"},
    {Must::kNobodyLeft, "departure", "say of no rank that it left"},
    {Must::kSuspect, "suspect", "suspect nobody who is innocent"},
};

const char* name_of(Must must) {
  for (const MustWords& each : kMustWords)
    if (each.must == must) return each.name;
  return "unknown";
}

const char* describe(Must must) {
  for (const MustWords& each : kMustWords)
    if (each.must == must) return each.text;
  return "unknown";
}

Requirements::Result Requirements::check(const RaisedError& error) const {
  Result result;
  for (std::size_t i = 0; i < patterns_.size();) {
    const Must must = patterns_[i].must;
    std::optional<Reasons> best;
    std::size_t end = i;
    for (; end < patterns_.size() && patterns_[end].must == must; ++end) {
      const ErrorPattern& pattern = patterns_[end].pattern;
      const bool is_better = !best || pattern.open.count() < best->count();
      if (is_better && pattern.matches(error)) best = pattern.open;
    }
    if (!best) {
      result.unmet = must;
      return result;
    }
    result.open = result.open | *best;
    ++result.met;
    i = end;
  }
  result.is_met = true;
  return result;
}

std::string Requirements::to_string(Must must, std::optional<Code> code) const {
  std::vector<std::string> all;
  std::vector<std::string> of_code;
  for (const Each& each : patterns_) {
    if (each.must != must) continue;
    all.push_back(each.pattern.to_string());
    if (code && each.pattern.codes.has(*code) && each.pattern.is_possible())
      of_code.push_back(all.back());
  }
  return fmt::format("{}", fmt::join(of_code.empty() ? all : of_code, "; or "));
}

std::string Requirements::to_string() const {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < patterns_.size(); ++i)
    if (i == 0 || patterns_[i].must != patterns_[i - 1].must)
      words.push_back(
          fmt::format("{}: {}", name_of(patterns_[i].must), to_string(patterns_[i].must)));
  return fmt::format("{}", fmt::join(words, "\n    "));
}

std::string AllowedError::cause() const {
  if (faults.empty()) return because;
  std::vector<std::string> words;
  for (const faults::Fault& fault : faults)
    words.push_back(
        fmt::format("rank {} is at fault ({})", fault.rank, faults::name_of(fault.kind)));
  return any_of(words);
}

std::string AllowedOutcomes::to_string() const {
  constexpr std::size_t kMostCauses = 8;
  std::string out = is_anything ? "anything" : may_succeed() ? "success" : "no success";
  if (open.count() > 0) out += fmt::format(" ({})", words_of(open));
  for (std::size_t i = 0; i < errors.size() && i < kMostCauses; ++i)
    out += fmt::format("\n  or an error, as {}:\n    {}", errors[i].cause(),
                       errors[i].requirements.to_string());
  if (errors.size() > kMostCauses)
    out += fmt::format("\n  or one of {} more causes", errors.size() - kMostCauses);
  return out;
}

// Whether there may be such an error comes first, and what is required of all errors, such as the
// state that they leave, afterwards.
Membership membership_of(const RaisedError& error, const AllowedOutcomes& allowed) {
  const Requirements::Result of_all = allowed.of_all_errors.check(error);
  Membership found;
  std::size_t met = 0;
  for (const AllowedError& each : allowed.errors) {
    const Requirements::Result result = each.requirements.check(error);
    const Reasons open = of_all.open | result.open;
    if (result.is_met && (!found.is_member || open.count() < found.open.count()))
      found = {true, open, Must::kCode, &each.requirements};
    if (result.is_met || found.is_member) continue;
    if (found.closest != nullptr && result.met <= met) continue;
    met = result.met;
    found = {false, {}, result.unmet, &each.requirements};
  }
  if (found.is_member && !of_all.is_met) return {false, {}, of_all.unmet, &allowed.of_all_errors};
  return found;
}

std::string describe(const Status& error, const Membership& found, const AllowedOutcomes& allowed) {
  const std::string did =
      found.closest == nullptr
          ? "failed without a reason: " + error.to_string()
          : fmt::format("failed: {}\nthe error must {}: {}", error.to_string(),
                        describe(found.unmet), found.closest->to_string(found.unmet, error.code()));
  return fmt::format("{}\nallowed: {}", did, allowed.to_string());
}

std::string describe_success(const AllowedOutcomes& allowed) {
  return fmt::format("ended well, although {}\nallowed: {}", allowed.must_fail,
                     allowed.to_string());
}

}  // namespace lockstep::properties
