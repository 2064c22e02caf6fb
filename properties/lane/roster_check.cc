#include "properties/lane/roster_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "reducer/comm/roster.h"
#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr platform::Duration kPatience = std::chrono::minutes(1);

std::string name_of(std::uint32_t rank) { return "rank " + std::to_string(rank); }

int place_of(const std::string& name, const std::vector<std::string>& members) {
  const auto found = std::find(members.begin(), members.end(), name);
  return found == members.end() ? kNone : static_cast<int>(found - members.begin());
}

// Returns what is wrong with a roster, or an empty text.
std::string flaw_of(const Result<Roster>& next, std::uint32_t generation,
                    const std::vector<std::string>& wanted, const std::string& name) {
  if (!next) return next.error().to_string();
  if (next->generation != std::int64_t{generation})
    return "it is of generation " + std::to_string(next->generation);
  if (next->members != wanted) return "it has other members than those that recover";
  if (next->stayed != next->size()) return "it does not say that all members stay";
  if (next->rank != place_of(name, wanted)) return "it gives this rank another number";
  return {};
}

// A process that the others have left out learns it, and one that wants to join waits for their
// next roster, as they can see.
std::string try_strangers(Store& store, const Roster& last, const Roster& next) {
  RosterOptions options;
  options.name = "stranger";
  const auto ask = [&](const Roster& known) {
    return agree_on_roster(store, known, options, platform::Deadline::in({}));
  };
  if (next.generation == 1) {  // The lane has the first roster from its program.
    options.name = "the first";
    const Result<Roster> first = ask(Roster());
    if (!first || first->generation != 0) return "a process alone cannot begin the first one";
    options.name = "stranger";
  }
  const Result<Roster> left_out = ask(last);
  if (left_out || left_out.error().code() != Code::kAborted)
    return "a process that it leaves out does not learn it";
  const auto waits = [&] { return somebody_waits(store, next).value_or(false); };
  if (waits()) return "somebody is said to wait for the next one, and nobody does";
  const Result<Roster> too_early = ask(Roster());
  if (too_early || too_early.error().code() != Code::kTimeout)
    return "a process that may only join the next one does not wait for it";
  if (!waits()) return "nobody is said to wait for the next one, and a process does";
  return {};
}

// A member waits no longer for one that does not come than its patience, or its deadline if that is
// earlier.
std::string wait_for_absent(const std::string& name) {
  constexpr platform::Duration kShort = std::chrono::microseconds(50);
  constexpr platform::Duration kLong = std::chrono::microseconds(500);
  for (const bool is_patient : {false, true}) {
    HashStore store;
    Roster last;
    last.generation = 0;
    last.members = {name, "absent"};
    last.stayed = last.size();
    last.rank = 0;
    RosterOptions options;
    options.name = name;
    options.fewest = 1;
    options.most = last.size();
    options.patience = is_patient ? kLong : kShort;
    const platform::Duration begun = platform::now();
    const Result<Roster> next =
        agree_on_roster(store, last, options, platform::Deadline::in(is_patient ? kShort : kLong));
    if (platform::now() - begun >= kLong) return "a rank waited too long for one that is absent";
    if (!is_patient && (!next || next->members != std::vector<std::string>{name}))
      return "a rank does not go on without one that is absent";
  }
  return {};
}

}  // namespace

RosterCheck::RosterCheck(Store& store, std::uint32_t world, std::uint32_t rank)
    : store_(store), rank_(rank) {
  for (std::uint32_t each = 0; each < world; ++each) members_.push_back(name_of(each));
}

void RosterCheck::check(std::uint32_t generation, const std::vector<std::uint32_t>& members) {
  Roster last;
  last.generation = generation_ == kNone ? std::int64_t{generation} - 1 : generation_;
  last.members = members_;
  last.stayed = last.size();
  last.rank = place_of(name_of(rank_), members_);
  RosterOptions options;
  options.name = name_of(rank_);
  options.fewest = options.most = static_cast<int>(members.size());
  options.patience = kPatience;
  const platform::Duration begun = platform::now();
  Result<Roster> next = agree_on_roster(store_, last, options, platform::Deadline::never());
  std::vector<std::string> wanted;
  for (const std::uint32_t member : members) wanted.push_back(name_of(member));
  std::string flaw = flaw_of(next, generation, wanted, options.name);
  if (flaw.empty() && platform::now() - begun >= kPatience)
    flaw = "a rank waited for others, although all of them were there";
  if (flaw.empty() && rank_ == members.front()) flaw = try_strangers(store_, last, *next);
  if (flaw.empty() && rank_ == members.back()) flaw = wait_for_absent(options.name);
  if (!flaw.empty() && wrong_.empty())
    wrong_ = "the roster of generation " + std::to_string(generation) + ": " + flaw;
  generation_ = generation;
  members_ = std::move(wanted);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
