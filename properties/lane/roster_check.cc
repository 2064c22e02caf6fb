#include "properties/lane/roster_check.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "reducer/comm/roster.h"

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

// A store that has one roster, or that can be reached by nobody.
class PlayedStore final : public Store {
 public:
  explicit PlayedStore(std::optional<std::string> roster) : roster_(std::move(roster)) {}
  Result<bool> set(std::string_view, std::string_view) override { return failed(away()); }
  Result<std::string> get(std::string_view, platform::Deadline) override {
    return roster_ ? Result<std::string>(*roster_) : failed(away());
  }
  Result<bool> contains(std::string_view) override {
    return roster_ ? Result<bool>(true) : failed(away());
  }

 private:
  static Status away() { return {Code::kTransport, "nobody is there"}; }
  const std::optional<std::string> roster_;
};

Code answer_to(const RosterOptions& options, std::optional<std::string> roster) {
  PlayedStore store(std::move(roster));
  Roster last;
  last.generation = 3;
  last.members = {"a", "b"};
  const Result<Roster> next = agree_on_roster(store, last, options, platform::Deadline::never());
  return next ? Code::kOk : next.error().code();
}

// What is out of range is refused before the store is asked, and what is not passes.
std::string flaw_of_options() {
  constexpr int kMost = kMostMembers;
  struct Asked {
    std::string name;
    int fewest;
    int most;
    bool fits;
  };
  for (const Asked& asked : {Asked{"", 1, 1, false},
                             {"a\nb", 1, 1, false},
                             {std::string(4096, 'a'), 1, 1, true},
                             {std::string(4097, 'a'), 1, 1, false},
                             {"a", 0, 1, false},
                             {"a", 2, 1, false},
                             {"a", 2, 2, true},
                             {"a", 1, kMost, true},
                             {"a", 1, kMost + 1, false}}) {
    RosterOptions options;
    options.name = asked.name;
    options.fewest = asked.fewest;
    options.most = asked.most;
    const Code wanted = asked.fits ? Code::kTransport : Code::kInvalidArgument;
    if (answer_to(options, std::nullopt) != wanted)
      return "a name of " + std::to_string(asked.name.size()) + " bytes in a roster of " +
             std::to_string(asked.fewest) + " to " + std::to_string(asked.most) + " members " +
             (asked.fits ? "was refused" : "was not refused");
  }
  return {};
}

// A damaged roster is an error, and one without this process says that it was left out.
std::string flaw_of_stored() {
  RosterOptions options;
  options.name = "a";
  for (const auto& [text, wanted] : {std::pair("2\nb\na\n", Code::kOk),
                                     {"0\na\n", Code::kOk},
                                     {"12\na\n", Code::kCorrupted},
                                     {"1\nb\n", Code::kAborted},
                                     {"", Code::kCorrupted},
                                     {"1", Code::kCorrupted},
                                     {"\na\n", Code::kCorrupted},
                                     {"x\na\n", Code::kCorrupted},
                                     {"/\na\n", Code::kCorrupted},
                                     {"2\na\n", Code::kCorrupted},
                                     {"0\n", Code::kCorrupted},
                                     {"0\na", Code::kCorrupted},
                                     {"000000000\na\n", Code::kOk},
                                     {"0000000000\na\n", Code::kCorrupted}})
    if (answer_to(options, text) != wanted)
      return "the roster \"" + std::string(text) + "\" was answered wrongly";
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
  if (flaw.empty()) flaw = flaw_of_options();
  if (flaw.empty()) flaw = flaw_of_stored();
  if (flaw.empty() && platform::now() - begun >= kPatience)
    flaw = "a rank waited for others, although all of them were there";
  if (!flaw.empty() && wrong_.empty())
    wrong_ = "the roster of generation " + std::to_string(generation) + ": " + flaw;
  generation_ = generation;
  members_ = std::move(wanted);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
