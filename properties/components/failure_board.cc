// Whom ranks take for the cause of a failure, by the reports that they find in the store of their
// group (reducer/failure_board.h), where chance makes the reports. The ranks of a program leave few
// of the reports that they could leave: they stop at the first cause.
#include "reducer/failure_board.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "properties/components/checks.h"
#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// The reports that the ranks of one group leave in their store.
struct Group {
  int size = 0;
  std::map<int, Failure> reports;  // by rank, of those that can be read
  std::vector<int> silent;
  std::vector<int> damaged;
  std::map<int, std::int64_t> notes;  // by rank: the pass that it gave up
};

constexpr std::int64_t kOwnReducer = 7;

// A store into which some ranks write their reports only after somebody has asked for them in vain.
class LateStore final : public HashStore {
 public:
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override {
    Result<std::string> value = HashStore::get(key, deadline);
    const auto late = late_.find(std::string(key));
    if (value || late == late_.end()) return value;
    set(key, encode(late->second)).value();
    return value;
  }
  void will_write(int rank, const Failure& report) {
    late_["failure/" + std::to_string(rank)] = report;
  }

 private:
  std::map<std::string, Failure> late_;
};

int draw(Choices& chance, int limit) {
  return static_cast<int>(chance.below(static_cast<std::uint32_t>(limit)));
}

Failure report_of(Choices& chance, int rank, int size) {
  constexpr std::array<Code, 5> kCodes{Code::kTimeout, Code::kTimeout, Code::kPeerLost,
                                       Code::kTransport, Code::kAborted};
  Failure report;
  report.reported_by = rank;
  report.detail = "what rank " + std::to_string(rank) + " saw";
  report.pass = draw(chance, 2);
  if (draw(chance, 12) == 0) {
    report.code = Code::kUserFailure;
    report.rank = rank;
    report.definite = true;
    return report;
  }
  report.code = kCodes[static_cast<std::size_t>(draw(chance, 5))];
  report.collective = "all_reduce";
  report.sequence = draw(chance, 3);
  report.bucket = draw(chance, 2);
  report.reducer_id = 1;
  const int other = (rank + 1 + draw(chance, size - 1)) % size;
  if (draw(chance, 4) != 0) report.suspect = draw(chance, 6) == 0 ? rank : other;
  const int who = draw(chance, 3);
  report.rank = who == 0 ? kNone : who == 1 ? rank : report.suspect;
  return report;
}

// Adds what only some reports have: what followed, and of an error of the rank's own the
// parameters, which may be known where the bucket is not.
void complete_report(Choices& chance, Failure& report) {
  const bool has_later = draw(chance, 3) == 0;
  const int place = draw(chance, 3);
  if (has_later)
    report.later.push_back("rank " + std::to_string(report.reported_by) + ": what followed");
  if (!report.definite) return;
  if (place != 0) report.parameters = {"p0"};
  if (place == 2) report.bucket = 1;
}

Group group_of(Choices& chance) {
  Group group;
  group.size = 2 + draw(chance, 4);
  const int silence = draw(chance, 3);  // none, few, or many are silent
  for (int rank = 0; rank < group.size; ++rank) {
    const int kind = draw(chance, 8);
    if (kind < silence)
      group.silent.push_back(rank);
    else if (kind == 7)
      group.damaged.push_back(rank);
    else
      group.reports[rank] = report_of(chance, rank, group.size);
  }
  return group;
}

// Sets a number in an encoded report, which has them first: the format, the code, the ranks of the
// cause and of who reports it, pass, bucket, reducer, number of the collective, suspect.
enum Field { kFormat, kCode, kRank, kReportedBy, kPass, kBucket, kReducer, kSequence, kSuspect };
constexpr std::size_t kTextLength = 10;  // behind these, and whether the cause is definite

void set_number(std::string& report, std::size_t field, std::int64_t value) {
  std::memcpy(report.data() + field * sizeof value, &value, sizeof value);
}

// Returns what a rank leaves when its report is torn or damaged, when it is of another version, or
// when it has a number that no failure in its group has.
std::string damaged_report(Choices& chance, int rank, int size) {
  Failure failure = report_of(chance, rank, size);
  failure.parameters = {"p0"};
  failure.later = {"what followed"};
  std::string report = encode(failure);
  const auto some = static_cast<std::int64_t>(chance.below(3));
  const std::size_t number = kPass + chance.below(4);  // one without a limit above
  const std::size_t of_rank = chance.percent(50) ? kRank : kSuspect;
  switch (chance.below(10)) {
    case 0:
      return report.substr(0, chance.below(static_cast<std::uint32_t>(report.size())));
    case 1:
      return report + '\0';
    case 2:
      set_number(report, kFormat, some);
      return report;
    case 3:
      set_number(report, kCode, static_cast<std::int64_t>(Code::kInternal) + 1 + some);
      return report;
    case 4:
      set_number(report, kCode, -some);
      return report;
    case 5:
      set_number(report, of_rank, size + some);
      return report;
    case 6:
      set_number(report, of_rank, kNone - 1 - some);
      return report;
    case 7:
      set_number(report, kReportedBy, (rank + 1) % size);
      return report;
    case 8:
      set_number(report, number, kNone - 1 - some);
      return report;
    default:
      // A number of 64 bits that has the right lower half, or the length of a text.
      set_number(report, some == 0 ? kTextLength : of_rank, some == 1 ? std::int64_t{1} << 32 : -5);
      return report;
  }
}

// Whom the reports name: a rank and a suspect, and whose report that is, if it is one.
struct Named {
  int rank = kNone;
  int suspect = kNone;
  std::optional<int> by;
};

class Judge {
 public:
  explicit Judge(const Group& group) : group_(group) {}

  Named answer(int own) const {
    for (const auto& [rank, report] : group_.reports)
      if (report.definite) return {report.rank, report.suspect, rank};
    const Failure& mine = group_.reports.at(own);
    const std::optional<int> silent = most_suspected(mine.code == Code::kPeerLost);
    std::optional<int> cause;
    const bool is_none_suspected = !silent || votes(*silent) == 0;
    if (is_none_suspected) cause = first_that_suspects_itself();
    if (cause) return completed(*cause);
    if (group_.silent.empty())
      cause = end_of(least(all()));
    else if (is_none_suspected)
      cause = end_of_others();
    if (cause && silent && is_for_a_silent_rank(*cause)) cause.reset();
    if (!cause) return silent ? Named{*silent, *silent, {}} : Named{mine.rank, mine.suspect, own};
    return completed(*cause);
  }

 private:
  std::vector<int> all() const {
    std::vector<int> ranks;
    for (const auto& each : group_.reports) ranks.push_back(each.first);
    return ranks;
  }
  int votes(int suspect, std::optional<Code> code = {}) const {
    return static_cast<int>(
        std::count_if(group_.reports.begin(), group_.reports.end(), [&](const auto& each) {
          return each.second.suspect == suspect && (!code || each.second.code == *code);
        }));
  }
  bool has_waited(int rank) const {
    const Failure& report = group_.reports.at(rank);
    return report.code == Code::kTimeout && report.rank == rank;
  }
  bool suspects_itself(int rank) const {
    return has_waited(rank) && group_.reports.at(rank).suspect == rank;
  }
  // A rank that suspects itself counts if another one has waited, too.
  std::optional<int> first_that_suspects_itself() const {
    std::vector<int> waiting;
    for (const int rank : all())
      if (has_waited(rank)) waiting.push_back(rank);
    if (waiting.size() < 2) return {};
    const auto found = std::find_if(waiting.begin(), waiting.end(),
                                    [this](int rank) { return suspects_itself(rank); });
    return found == waiting.end() ? std::nullopt : std::optional(*found);
  }
  static bool is_loss_without_name(const Failure& report) {
    return report.code == Code::kPeerLost && report.rank == kNone && report.suspect == kNone;
  }

  // A rank that lost a peer without a name has lost the one that is silent, if that is only one. A
  // rank that waited for a peer without a name waited for a silent one, unless another rank waited
  // for this rank. Who learned of the end of the group from it did not wait for it.
  bool is_for_a_silent_rank(int rank) const {
    const Failure& report = group_.reports.at(rank);
    if (is_loss_without_name(report)) return group_.silent.size() == 1;
    const auto waits_for_it = [rank](const auto& each) {
      return each.second.suspect == rank && each.second.code != Code::kAborted;
    };
    return report.code == Code::kTimeout && report.suspect == kNone &&
           std::none_of(group_.reports.begin(), group_.reports.end(), waits_for_it);
  }

  // Returns, of the silent ranks, the one that most ranks suspect; of several of those, the one
  // that most ranks have lost; of several again, the lowest. A rank whose report is damaged takes
  // its place if more ranks suspect it. Returns nobody if this rank has lost a peer, several ranks
  // are silent, and no rank suspects one of them.
  std::optional<int> most_suspected(bool has_lost_a_peer) const {
    std::optional<int> found;
    const auto weight = [&](int rank) {
      return std::pair(votes(rank), votes(rank, Code::kPeerLost));
    };
    for (const int rank : group_.silent)
      if (!found || weight(rank) > weight(*found)) found = rank;
    if (!found) return found;
    for (const int rank : group_.damaged)
      if (votes(rank) > votes(*found)) found = rank;
    if (has_lost_a_peer && group_.silent.size() > 1 && votes(*found) == 0) found.reset();
    return found;
  }

  // Returns the one of these ranks whose report is of the earliest pass, and of the earliest
  // collective in it.
  int least(const std::vector<int>& ranks) const {
    return *std::min_element(ranks.begin(), ranks.end(), [&](int one, int other) {
      const auto at = [&](int rank) {
        const Failure& report = group_.reports.at(rank);
        return std::pair(report.pass, report.sequence);
      };
      return at(one) < at(other);
    });
  }

  // Returns the rank at which the suspicions of a rank end. That rank suspects nobody, or a rank
  // without a report. If the suspicions run in a circle, it is the rank of the circle whose link
  // broke; without one, the rank whose suspect is silent to the most ranks; of several, the lowest.
  int end_of(int rank) const {
    std::vector<int> way{rank};
    while (true) {
      const int next = group_.reports.at(way.back()).suspect;
      if (next == kNone || group_.reports.count(next) == 0) return way.back();
      const auto known = std::find(way.begin(), way.end(), next);
      way.erase(way.begin(), known == way.end() ? way.begin() : known);
      if (known == way.end()) {
        way.push_back(next);
        continue;
      }
      return *std::min_element(way.begin(), way.end(), [&](int one, int other) {
        return order_in_circle(one) < order_in_circle(other);
      });
    }
  }
  std::tuple<bool, int, int> order_in_circle(int rank) const {
    const Failure& report = group_.reports.at(rank);
    const int seen = report.code == Code::kTimeout ? votes(report.suspect) : 0;
    return {report.code != Code::kTransport, -seen, rank};
  }

  // Follows the suspicions of each rank. Of the ends that are not the rank itself, it returns the
  // one whose report is the earliest.
  std::optional<int> end_of_others() const {
    std::vector<int> ends;
    for (const int rank : all())
      if (end_of(rank) != rank) ends.push_back(end_of(rank));
    return ends.empty() ? std::nullopt : std::optional(least(ends));
  }

  // Returns what the report of the cause names. A rank that waited for nobody whom it could name,
  // and for which others wait, is the suspect itself; a suspect that is silent to more ranks than
  // any other rank is the cause.
  Named completed(int cause) const {
    const Failure& report = group_.reports.at(cause);
    Named named{report.rank, report.suspect, cause};
    if (report.code != Code::kTimeout) return named;
    if (suspects_itself(cause) && first_that_suspects_itself() != cause) named.suspect = kNone;
    if (report.rank == kNone && report.suspect == kNone && votes(cause) > 0)
      named.rank = named.suspect = cause;
    const int most = named.suspect == kNone ? 0 : votes(named.suspect);
    bool is_most = most > 1;
    for (int rank = 0; rank < group_.size; ++rank)
      is_most = is_most && (rank == named.suspect || votes(rank) < most);
    if (is_most) named.rank = named.suspect;
    return named;
  }

  const Group& group_;
};

bool says(const std::vector<std::string>& lines, const std::string& begin) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.starts_with(begin); });
}

// What the suspect, and two more ranks that others may wait for, have left about the rank's pass.
std::string notes_for(const Group& group, int own, int suspect) {
  const auto is_definite = [](const auto& each) { return each.second.definite; };
  if (std::any_of(group.reports.begin(), group.reports.end(), is_definite)) return {};
  std::set<int> read;
  std::vector<int> ranks = {suspect};
  for (int rank = 0; rank < group.size; ++rank) {
    const auto suspects_it = [rank](const auto& each) { return each.second.suspect == rank; };
    if (group.reports.count(rank) == 0 ||
        std::any_of(group.reports.begin(), group.reports.end(), suspects_it))
      ranks.push_back(rank);
  }
  for (const int rank : ranks) {
    const auto note = group.notes.find(rank);
    if (rank == own || note == group.notes.end() || read.size() == 3) continue;
    if (note->second == group.reports.at(own).pass) read.insert(rank);
  }
  std::string all;
  for (const int rank : read)
    all += "; rank " + std::to_string(rank) + " raised in pass " +
           std::to_string(group.notes.at(rank)) +
           " before it had launched anything: 'a %1b[1m batch of " + std::to_string(rank) + "'";
  return all;
}

// Returns what is wrong with the failure that rank `own` raises, or an empty text.
std::string flaw_of(const Group& group, int own, const Failure& raised) {
  const Failure& mine = group.reports.at(own);
  if (mine.definite) return raised.to_string() == mine.to_string() ? "" : "it was another one";
  const Named named = Judge(group).answer(own);
  if (raised.rank != named.rank || raised.suspect != named.suspect)
    return "it had to name rank " + std::to_string(named.rank) + " and to suspect rank " +
           std::to_string(named.suspect);
  const Failure& cause = group.reports.at(named.by.value_or(own));
  if (raised.code != cause.code) return "it has another code than its cause";
  if (raised.reported_by != own) return "it names another rank as the one that reports it";
  const Failure& place = cause.collective.empty() ? mine : cause;
  const bool has_bucket = cause.bucket != kNone || !cause.parameters.empty();
  const Failure& owner = has_bucket ? cause : place;  // of the bucket
  if (raised.collective != place.collective || raised.sequence != place.sequence ||
      raised.bucket != owner.bucket || raised.reducer_id != owner.reducer_id)
    return "it names another collective than that in which it arose";
  if (raised.pass != (cause.pass == kNone ? mine.pass : cause.pass))
    return "it names another pass than that of its cause";
  const std::string notes = notes_for(group, own, named.by ? mine.suspect : named.suspect);
  if (!raised.detail.ends_with(notes)) return "it lacks these notes: " + notes;
  const std::string detail = raised.detail.substr(0, raised.detail.size() - notes.size());
  const bool is_blamed = !named.by && named.suspect != mine.suspect;
  const auto seen = std::find_if(group.reports.begin(), group.reports.end(), [&](const auto& each) {
    return each.second.suspect == named.suspect;
  });
  std::string blame = "rank " + std::to_string(named.suspect) + " has reported no cause of its own";
  if (seen != group.reports.end())
    blame += "; rank " + std::to_string(seen->first) + " saw: " + seen->second.detail;
  else if (notes.find("; rank " + std::to_string(named.suspect) + " raised") == std::string::npos)
    blame += ": it is gone, or it hangs, or it has not come to this collective";
  if (is_blamed && detail != blame) return "it does not say who is silent, and no more";
  if (!is_blamed && detail != cause.detail) return "it has another text than its cause";
  const bool is_other = raised.code != mine.code || detail != mine.detail;
  const std::string saw = "rank " + std::to_string(own) + " saw: ";
  if (is_other != says(raised.later, saw))
    return "it does not say rightly what the rank itself saw";
  Failure itself = mine;
  itself.later.clear();
  if (is_other && std::find(raised.later.begin(), raised.later.end(), saw + itself.to_string()) ==
                      raised.later.end())
    return "it does not say alone what the rank itself saw, without what followed from that";
  const bool is_definite = cause.definite;
  for (const int rank : group.damaged)
    if (!is_definite &&
        !says(raised.later, "rank " + std::to_string(rank) + " left a report of a failure that"))
      return "it does not say that the report of rank " + std::to_string(rank) + " cannot be read";
  return {};
}

std::string describe(const Group& group) {
  std::string text;
  for (const auto& [rank, report] : group.reports)
    text += "\n  rank " + std::to_string(rank) + " reported: " + report.to_string();
  for (const int rank : group.damaged)
    text += "\n  rank " + std::to_string(rank) + " left what nobody can read";
  for (const int rank : group.silent) text += "\n  rank " + std::to_string(rank) + " is silent";
  return text;
}

// One rank reports late, after others have looked. A cause that is certain ends the reading, so it
// may be late only if it is alone.
bool may_be_late(const Group& group, const Failure& report) {
  return !report.definite ||
         std::count_if(group.reports.begin(), group.reports.end(),
                       [](const auto& each) { return each.second.definite; }) == 1;
}

std::string judge_group(Choices& chance) {
  Group group = group_of(chance);
  for (auto& each : group.reports) complete_report(chance, each.second);
  const int late = draw(chance, group.size);
  for (int rank = 0; rank < group.size; ++rank)
    if (chance.percent(30)) group.notes[rank] = draw(chance, 2);
  // A user who gives up between two passes names none.
  for (auto& each : group.reports)
    if (chance.percent(10)) each.second.pass = kNone;
  std::map<int, std::string> damaged;
  for (const int rank : group.damaged) damaged[rank] = damaged_report(chance, rank, group.size);
  for (const auto& [rank, report] : group.reports) {
    const auto store = std::make_shared<LateStore>();
    for (const auto& [each, text] : damaged)
      store->set("failure/" + std::to_string(each), text).value();
    for (const auto& [each, its] : group.reports) {
      if (each == late && each != rank && may_be_late(group, its)) {
        store->will_write(each, its);
        continue;
      }
      Failure as_met = its;  // The board says who reports it.
      as_met.reported_by = kNone;
      FailureBoard(store, each, group.size).publish(as_met);
      FailureBoard(store, each, group.size).publish(Failure());  // The first one stays.
    }
    for (const auto& [each, pass] : group.notes)
      for (const std::int64_t reducer : {kOwnReducer - 1, kOwnReducer})
        FailureBoard(store, each, group.size)
            .leave_note(reducer, reducer == kOwnReducer ? pass : 1 - pass,
                        "a \x1b[1m batch of " + std::to_string(each));
    const Failure raised =
        FailureBoard(store, rank, group.size).settle(report, platform::Duration(0), kOwnReducer);
    const std::string flaw = flaw_of(group, rank, raised);
    if (!flaw.empty())
      return "by the reports of " + std::to_string(group.size) + " ranks, rank " +
             std::to_string(rank) + " raises: " + raised.to_string() + "; " + flaw +
             describe(group);
  }
  return {};
}

// A rank that is alone, or that has an error of its own, waits for nobody, and raises its own error
// as it is.
std::string judge_alone(Choices& chance) {
  const int size = chance.percent(50) ? 1 : 3;
  Failure own = report_of(chance, 0, std::max(size, 2));
  if (size == 1 && own.suspect > 0) own.suspect = 0;
  if (size == 1 && own.rank > 0) own.rank = 0;
  if (size > 1) own.definite = true;
  const auto store = std::make_shared<HashStore>();
  for (int rank = 1; rank < size; ++rank)
    FailureBoard(store, rank, size).publish(report_of(chance, rank, size));
  const platform::Duration begun = platform::now();
  const Failure raised = FailureBoard(store, 0, size).settle(own, std::chrono::seconds(1));
  if (raised.to_string() != own.to_string() || raised.reported_by != own.reported_by)
    return "of " + std::to_string(size) + " ranks, one that has met: " + own.to_string() +
           " raises: " + raised.to_string();
  return platform::now() == begun ? "" : "a rank that needs no other one waits for it";
}

// A store that says what is asked of it, and that has what ranks up to one of them have written.
class AskedStore final : public HashStore {
 public:
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override {
    asked_.emplace_back(key);
    longest_ = std::max(longest_, deadline.remaining());
    return HashStore::get(key, platform::Deadline::in({}));
  }
  const std::vector<std::string>& asked() const { return asked_; }
  platform::Duration longest() const { return longest_; }

 private:
  std::vector<std::string> asked_;
  platform::Duration longest_{};
};

// Ranks are asked in their order, up to the first one with a cause that is certain, and for no
// longer than the grace.
std::string judge_order(Choices& chance) {
  constexpr platform::Duration kGrace = std::chrono::milliseconds(70);
  const int size = 3 + draw(chance, 3);
  const int own = draw(chance, size);
  const int certain = draw(chance, size);
  const auto store = std::make_shared<AskedStore>();
  Failure cause;
  cause.code = Code::kUserFailure;
  cause.rank = certain;
  cause.definite = true;
  if (certain != own) FailureBoard(store, certain, size).publish(cause);
  Failure lost = report_of(chance, own, size);
  lost.definite = false;
  FailureBoard(store, own, size).settle(lost, kGrace);
  std::vector<std::string> right;
  const int last = certain == own ? size - 1 : certain;
  const int rounds = certain == own ? 2 : 1;  // It asks again where it knows of no certain cause.
  for (int round = 0; round < rounds; ++round)
    for (int rank = 0; rank <= last; ++rank)
      if (rank != own) right.push_back("failure/" + std::to_string(rank));
  if (store->asked() != right) return "a rank asks others for their causes in a wrong order";
  return store->longest() == kGrace ? "" : "a rank does not wait for others as long as it is to";
}

std::string judge_records(Choices& chance) {
  const int size = 1 + draw(chance, 5);
  const int own = draw(chance, size);
  const auto store = std::make_shared<HashStore>();
  const auto record_of = [size](int rank, int pass) {
    FlightRecord record;
    record.rank = rank;
    record.size = size;
    record.reducer_id = 1;
    record.pass = pass;
    return record;
  };
  std::vector<std::string> right;
  for (int rank = 0; rank < size; ++rank) {
    FlightRecord record = record_of(rank, 1 + draw(chance, 3));
    const std::string text = to_text(record);
    const int kind = draw(chance, 8);
    const std::string name = "flight_record/1/" + std::to_string(rank);
    if (kind == 0) record.rank = (rank + 1) % size;
    if (kind == 1) ++record.size;
    if (kind == 2) record.reducer_id = 2;
    if (kind == 3) continue;  // It is silent.
    if (kind < 3) store->set(name, to_text(record)).value();
    if (kind == 4) store->set(name, text.substr(0, text.size() / 2)).value();
    if (kind > 4) FailureBoard(store, rank, size).publish(record);
    FailureBoard(store, rank, size).publish(record_of(rank, 9));  // The first one stays.
    const bool is_right = kind > 4 || (kind == 0 && size == 1);
    if (is_right && rank != own) right.push_back(text);
  }
  const FlightRecord mine = record_of(own, 7);
  right.push_back(to_text(mine));
  std::vector<std::string> found;
  for (const FlightRecord& each :
       FailureBoard(store, own, size).records(mine, platform::Deadline::in({})))
    found.push_back(to_text(each));
  return found == right ? "" : "a rank finds other flight records than ranks have left";
}

}  // namespace

std::string check_failure_board(Choices& choices) {
  // Most situations are a group with reports, as there is most to choose from.
  constexpr std::array kQuestions{judge_group, judge_group, judge_group,  judge_group,
                                  judge_alone, judge_order, judge_records};
  return kQuestions[choices.below(kQuestions.size())](choices);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
