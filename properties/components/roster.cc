// This component checks what one process, alone with a store, is told about a roster that it
// asks for (F9; reducer/comm/roster.h). It asks with options that must be refused or accepted,
// of a store that holds entries which no member wrote or whose calls fail, and among members and
// strangers drawn by chance. It takes a little virtual time.
#include "reducer/comm/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "properties/components/checks.h"
#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

int place_of(const std::string& name, const std::vector<std::string>& members) {
  const auto found = std::find(members.begin(), members.end(), name);
  return found == members.end() ? kNone : static_cast<int>(found - members.begin());
}

// A store of which one call fails.
class FailingStore final : public Store {
 public:
  FailingStore(Store& inner, int failing) : inner_(inner), failing_(failing) {}
  Result<bool> set(std::string_view key, std::string_view value) override {
    if (fails()) return failed(refusal());
    return inner_.set(key, value);
  }
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override {
    if (fails()) return failed(refusal());
    return inner_.get(key, deadline);
  }
  Result<bool> contains(std::string_view key) override {
    if (fails()) return failed(refusal());
    return inner_.contains(key);
  }
  bool has_failed() const { return calls_ > failing_; }

 private:
  bool fails() { return calls_++ == failing_; }
  static Status refusal() { return Status(Code::kTransport, "the store cannot be reached"); }

  Store& inner_;
  const int failing_;
  int calls_ = 0;
};

class LoneProcess {
 public:
  explicit LoneProcess(Choices& choices) : chance_(choices) {}

  std::string judge() {
    std::string flaw = try_options();
    if (flaw.empty()) flaw = try_damaged();
    if (flaw.empty()) flaw = try_crowd();
    if (flaw.empty()) flaw = try_failing();
    return flaw;
  }

 private:
  static constexpr platform::Duration kShort = std::chrono::microseconds(50);
  static constexpr const char* kOwn = "own";

  int draw(std::uint32_t limit) { return static_cast<int>(chance_.below(limit)); }
  static RosterOptions options_of(int fewest, int most) {
    RosterOptions options;
    options.name = kOwn;
    options.fewest = fewest;
    options.most = most;
    options.patience = kShort;
    return options;
  }
  static Code code_of(const Result<Roster>& roster) {
    return roster ? Code::kOk : roster.error().code();
  }
  static Result<Roster> ask(Store& store, const Roster& last, const RosterOptions& options) {
    return agree_on_roster(store, last, options, platform::Deadline::in(2 * kShort));
  }

  // ---- Options ----

  std::string try_options() {
    const auto code_with = [](const std::string& name, int fewest, int most) {
      HashStore store;
      RosterOptions options = options_of(fewest, most);
      options.name = name;
      return code_of(agree_on_roster(store, Roster(), options, platform::Deadline::in({})));
    };
    const std::string longest(4096, 'n');
    const bool are_right =
        code_with("", 1, 1) == Code::kInvalidArgument && code_with("n", 1, 1) == Code::kOk &&
        code_with(longest, 1, 1) == Code::kOk &&
        code_with(longest + "n", 1, 1) == Code::kInvalidArgument &&
        code_with("two\nlines", 1, 1) == Code::kInvalidArgument &&
        code_with(kOwn, 0, 1) == Code::kInvalidArgument &&
        code_with(kOwn, 2, 1) == Code::kInvalidArgument &&
        code_with(kOwn, 2, 2) == Code::kTimeout && code_with(kOwn, 1, kMostMembers) == Code::kOk &&
        code_with(kOwn, 1, kMostMembers + 1) == Code::kInvalidArgument;
    return are_right ? "" : "its name, or the numbers of members, are refused or accepted wrongly";
  }

  // ---- What the store holds ----

  // A roster as the store has it: how many stay, and a line for each member.
  static std::string decided(int stayed, const std::vector<std::string>& members) {
    std::string text = fmt::format("{}\n", stayed);
    for (const std::string& each : members) text += each + "\n";
    return text;
  }
  static std::string key(std::int64_t generation, const std::string& rest) {
    return fmt::format("roster/{}/{}", generation, rest);
  }

  std::string try_damaged() {
    const std::string damaged[] = {"",          "\n",        "own\n",     "1",
                                   "1\nown",    "0\n",       "2\nown\n",  "-1\nown\n",
                                   " 1\nown\n", "1 \nown\n", "0x\nown\n", "0000000001\nown\n",
                                   "1\nown\nb", "9\nown\n",  "/\nown\n",  ":\nown\n"};
    Roster last;
    last.generation = draw(3);
    last.members = {kOwn, "b"};
    last.rank = 0;
    for (const std::string& text : damaged) {
      HashStore store;
      store.set(key(last.generation + 1, "members"), text);
      const Result<Roster> next = ask(store, last, options_of(1, 2));
      if (code_of(next) != Code::kCorrupted)
        return fmt::format("it takes the damaged roster '{}'", text);
    }
    // As many members as a text has lines are right, and so is a number of nine digits.
    HashStore store;
    store.set(key(last.generation + 1, "members"), decided(1, {"b", kOwn}));
    const Result<Roster> next = ask(store, last, options_of(1, 2));
    if (!next || next->rank != 1 || next->stayed != 1 || next->size() != 2 ||
        next->generation != last.generation + 1 ||
        next->prefix() != fmt::format("group/{}", last.generation + 1))
      return "it does not take the roster that another member has written";
    HashStore longest;
    longest.set(key(last.generation + 1, "members"), "000000002\nown\nb\n");
    if (code_of(ask(longest, last, options_of(1, 2))) != Code::kOk)
      return "it refuses a number of nine digits";
    return {};
  }

  // ---- Others ----

  // Members of the last roster, and processes that join, have entered themselves, in any order and
  // some of them twice. The process enters itself, waits for its patience if not all are there, and
  // writes the roster: those that stay in their old order, and then those that join.
  std::string try_crowd() {
    HashStore store;
    Roster last;
    last.generation = draw(2);
    const int before = 1 + draw(4);
    const int own = draw(static_cast<std::uint32_t>(before));
    std::vector<std::string> here;
    for (int i = 0; i < before; ++i) {
      last.members.push_back(i == own ? kOwn : fmt::format("member {}", i));
      if (i != own && chance_.percent(60)) here.push_back(last.members.back());
    }
    if (chance_.percent(50)) std::reverse(here.begin(), here.end());
    last.rank = own;
    const std::int64_t generation = last.generation + 1;
    std::vector<std::string> stay = here;
    const bool was_here = chance_.percent(30);  // an attempt before has failed
    if (was_here)
      stay.insert(stay.begin() + draw(static_cast<std::uint32_t>(stay.size() + 1)), kOwn);
    for (std::size_t i = 0; i < stay.size(); ++i)
      store.set(key(generation, fmt::format("stay/{}", i)), stay[i]);
    if (!was_here) stay.emplace_back(kOwn);
    std::vector<std::string> join;
    const int joining = draw(4);
    for (int i = 0; i < joining; ++i) join.push_back(fmt::format("new {}", i));
    if (!here.empty() && chance_.percent(20)) join.push_back(here.front());  // it tried both ways
    for (std::size_t i = 0; i < join.size(); ++i)
      store.set(key(generation, fmt::format("join/{}", i)), join[i]);
    if (somebody_waits(store, last).value_or(join.empty()) == join.empty())
      return "it is wrong about whether somebody waits to join";

    RosterOptions options = options_of(1 + draw(4), 0);
    options.most = options.fewest + draw(4);
    std::vector<std::string> wanted;
    const auto most = static_cast<std::size_t>(options.most);
    if (stay.size() > most) stay.resize(most);
    for (const std::string& each : last.members)
      if (std::find(stay.begin(), stay.end(), each) != stay.end()) wanted.push_back(each);
    const std::size_t stayed = wanted.size();
    for (std::size_t i = 0; i < join.size() && i < most - stay.size(); ++i)
      if (std::find(wanted.begin(), wanted.end(), join[i]) == wanted.end())
        wanted.push_back(join[i]);
    const Result<Roster> next = ask(store, last, options);
    const bool is_in = std::find(wanted.begin(), wanted.end(), kOwn) != wanted.end();
    const bool is_enough = wanted.size() >= static_cast<std::size_t>(options.fewest);
    const Code code = !is_enough ? Code::kTimeout : is_in ? Code::kOk : Code::kAborted;
    if (code_of(next) != code)
      return fmt::format("it has {} where {} of {} to {} members are there", name_of(code_of(next)),
                         wanted.size(), options.fewest, options.most);
    if (!next) return {};
    if (next->members != wanted) return "it agrees on other members than those that are there";
    if (next->stayed != static_cast<int>(stayed)) return "it is wrong about how many stay";
    const bool has_place = next->rank == place_of(kOwn, wanted);
    return has_place ? "" : "it has another place than the roster says";
  }

  // ---- A store that fails ----

  // The process learns the error. It may try again, and is in the roster once.
  std::string try_failing() {
    HashStore store;
    FailingStore failing(store, draw(9));
    Roster last;
    const bool stays = chance_.percent(60);
    if (stays) {
      last.generation = 0;
      last.members = {kOwn, "b"};
      last.rank = 0;
      store.set(key(1, "stay/0"), "b");
    } else {
      store.set(key(0, "join/0"), "b");
    }
    const RosterOptions options = options_of(1, 2);
    const Result<Roster> first = ask(failing, last, options);
    if (failing.has_failed() != (code_of(first) == Code::kTransport))
      return "it does not learn that the store has failed";
    const Result<Roster> again = ask(store, last, options);
    const std::vector<std::string> wanted =
        stays ? std::vector<std::string>{kOwn, "b"} : std::vector<std::string>{"b", kOwn};
    return again && again->members == wanted && again->rank == place_of(kOwn, wanted)
               ? ""
               : "it is not in the roster when it tries again after a failure of the store";
  }

  Choices& chance_;
};

}  // namespace

std::string check_roster(Choices& choices) { return LoneProcess(choices).judge(); }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
