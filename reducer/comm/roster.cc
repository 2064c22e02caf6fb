#include "reducer/comm/roster.h"

#include <algorithm>
#include <new>

#include "reducer/base/check.h"
#include "reducer/comm/checked_store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using platform::Deadline;

constexpr std::size_t kLongestName = 4096;

std::string key_of(std::int64_t generation, const std::string& rest) {
  return "roster/" + std::to_string(generation) + "/" + rest;
}
// Members of the last roster, and processes that join, have places of their own, so that the latter
// cannot take those of the former.
std::string place_key(std::int64_t generation, bool stays, int place) {
  return key_of(generation, (stays ? "stay/" : "join/") + std::to_string(place));
}
std::string members_key(std::int64_t generation) { return key_of(generation, "members"); }

Deadline earlier(Deadline one, Deadline other) {
  if (one.is_never()) return other;
  return other.is_never() || one.at() < other.at() ? one : other;
}

// A roster as text: how many stayed, then a line for each member.
std::string text_of(const Roster& roster) {
  std::string text = std::to_string(roster.stayed) + "\n";
  for (const std::string& each : roster.members) text += each + "\n";
  return text;
}

Result<Roster> roster_from(std::int64_t generation, const std::string& text,
                           const std::string& name) {
  Roster roster;
  roster.generation = generation;
  std::size_t at = text.find('\n');
  const Status damaged(Code::kCorrupted, "the store holds a damaged roster of generation " +
                                             std::to_string(generation));
  if (at == std::string::npos || at == 0 || at > 9) return failed(damaged);
  for (std::size_t i = 0; i < at; ++i) {
    if (text[i] < '0' || text[i] > '9') return failed(damaged);
    roster.stayed = 10 * roster.stayed + (text[i] - '0');
  }
  for (std::size_t begin = at + 1; begin < text.size(); begin = at + 1) {
    at = text.find('\n', begin);
    if (at == std::string::npos) return failed(damaged);
    roster.members.push_back(text.substr(begin, at - begin));
    if (roster.members.back() == name) roster.rank = roster.size() - 1;
  }
  if (roster.members.empty() || roster.stayed > roster.size()) return failed(damaged);
  LOCKSTEP_CHECK_LT(roster.rank, roster.size());
  return roster;
}

Status check(const RosterOptions& options) {
  const auto wrong = [](const std::string& what) { return Status(Code::kInvalidArgument, what); };
  if (options.name.empty() || options.name.size() > kLongestName)
    return wrong("a member of a roster needs a name of 1 to 4096 bytes");
  if (options.name.find('\n') != std::string::npos)
    return wrong("the name of a member of a roster has no line break");
  if (options.fewest < 1 || options.most < options.fewest || options.most > kMostMembers)
    return wrong("a roster has " + std::to_string(options.fewest) + " to " +
                 std::to_string(options.most) +
                 " members: the first must be 1 or more, and the "
                 "second no less, and 65536 at most");
  return {};
}

// One attempt to be in the roster of one generation.
class Candidate {
 public:
  Candidate(Store& store, const Roster& last, std::int64_t generation, const RosterOptions& options,
            Deadline deadline)
      : store_(store),
        last_(last),
        generation_(generation),
        options_(options),
        deadline_(deadline) {}

  Result<Roster> run() {
    LOCKSTEP_CHECK_GE(generation_, 0);
    LOCKSTEP_CHECK(!stays() || generation_ == last_.generation + 1);
    auto decided = store_.contains(members_key(generation_));
    if (!decided) return failed(decided.error());
    if (!*decided) {
      Status status = enter();
      if (status.ok() && may_write()) status = write();
      if (!status.ok()) return failed(std::move(status));
    }
    auto text = store_.get(members_key(generation_), deadline_);
    if (!text) return failed(text.error());
    return roster_from(generation_, *text, options_.name);
  }

 private:
  // Whether this process may write the roster: a member of the last one, or anybody for the first.
  bool may_write() const { return stays() || generation_ == 0; }
  bool stays() const { return last_.generation != kNone; }

  // Takes the first free place. One that was entered before, by an attempt that failed, stays.
  Status enter() {
    LOCKSTEP_CHECK(!options_.name.empty());  // check() refuses one without.
    for (int place = 0; place < kMostMembers; ++place) {
      auto is_ours = store_.set(place_key(generation_, stays(), place), options_.name);
      if (!is_ours) return is_ours.error();
      if (*is_ours) return {};
      auto name = store_.get(place_key(generation_, stays(), place), deadline_);
      if (!name) return name.error();
      if (*name == options_.name) return {};
    }
    return {Code::kInvalidArgument, "there are 65536 candidates for a roster already"};
  }

  // Waits for others, and writes down who is there, unless somebody else has.
  Status write() {
    LOCKSTEP_CHECK(may_write());
    const Deadline until = earlier(Deadline::in(options_.patience), deadline_);
    auto staying = read_names(true, std::min(last_.size(), options_.most), until);
    if (!staying) return staying.error();
    const int free = options_.most - static_cast<int>(staying->size());
    LOCKSTEP_CHECK_GE(free, 0);
    auto joining = read_names(false, free, until);
    if (!joining) return joining.error();
    const Roster roster = order(*staying, *joining);
    if (roster.size() < options_.fewest)
      return {Code::kTimeout,
              std::to_string(roster.size()) + " of at least " + std::to_string(options_.fewest) +
                  " processes are there for generation " + std::to_string(generation_)};
    auto written = store_.set(members_key(generation_), text_of(roster));
    return written ? Status() : written.error();
  }

  // Waits for `most` names, and returns those that are there in time.
  Result<std::vector<std::string>> read_names(bool stay, int most, Deadline until) {
    std::vector<std::string> names;
    while (static_cast<int>(names.size()) < most) {
      const std::string key = place_key(generation_, stay, static_cast<int>(names.size()));
      auto is_there = store_.contains(key);
      if (!is_there) return failed(is_there.error());
      auto name = store_.get(key, *is_there ? deadline_ : until);
      if (!name && name.error().code() == Code::kTimeout) break;
      if (!name) return failed(name.error());
      names.push_back(std::move(*name));
    }
    LOCKSTEP_CHECK_LE(static_cast<int>(names.size()), std::max(most, 0));
    return names;
  }

  // Those that stay, in their order; then those that join.
  Roster order(const std::vector<std::string>& staying,
               const std::vector<std::string>& joining) const {
    const auto has = [](const std::vector<std::string>& names, const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    Roster roster;
    for (const std::string& each : last_.members)
      if (has(staying, each)) roster.members.push_back(each);
    roster.stayed = roster.size();
    for (const std::string& each : joining)
      if (!has(roster.members, each)) roster.members.push_back(each);
    LOCKSTEP_CHECK_LE(roster.stayed, last_.size());
    LOCKSTEP_CHECK_LE(roster.stayed, roster.size());  // roster_from() refuses any other.
    return roster;
  }

  Store& store_;
  const Roster& last_;
  const std::int64_t generation_;
  const RosterOptions& options_;
  const Deadline deadline_;
};

// The generation after the newest one that has a roster, from `first` on.
Result<std::int64_t> next_generation(Store& store, std::int64_t first) {
  LOCKSTEP_CHECK_GE(first, 0);
  while (true) {
    auto is_decided = store.contains(members_key(first));
    if (!is_decided) return failed(is_decided.error());
    if (!*is_decided) return first;
    ++first;
  }
}

}  // namespace

Result<Roster> agree_on_roster(Store& shared, const Roster& last, const RosterOptions& options,
                               Deadline deadline) try {
  CheckedStore store(shared);
  if (Status status = check(options); !status.ok()) return failed(status);
  if (last.generation != kNone) {
    auto roster = Candidate(store, last, last.generation + 1, options, deadline).run();
    if (!roster || roster->rank != kNone) return roster;
    return failed(Status(Code::kAborted, "this process was left out: generation " +
                                             std::to_string(roster->generation) + " has " +
                                             std::to_string(roster->size()) +
                                             " other members; it may only join"));
  }
  // A process that joins tries again if the members were faster.
  std::int64_t generation = 0;
  while (true) {
    auto next = next_generation(store, generation);
    if (!next) return failed(next.error());
    LOCKSTEP_CHECK_GE(*next, generation);
    // An attempt before this one may have entered the process, and the members have taken it since.
    if (*next > generation) {
      auto newest = Candidate(store, last, *next - 1, options, deadline).run();
      if (!newest || newest->rank != kNone) return newest;
    }
    generation = *next;
    auto roster = Candidate(store, last, generation, options, deadline).run();
    if (!roster || roster->rank != kNone) return roster;
  }
} catch (const std::bad_alloc&) {
  return failed(out_of_memory());
}

Result<bool> somebody_waits(Store& store, const Roster& roster) try {
  return CheckedStore(store).contains(place_key(roster.generation + 1, false, 0));
} catch (const std::bad_alloc&) {
  return failed(out_of_memory());
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
