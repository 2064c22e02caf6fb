#include "reducer/failure_board.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::string key_of(int rank) { return "failure/" + std::to_string(rank); }

// Several reducers of one group may share a store.
std::string flight_record_key_of(int rank, std::int64_t reducer_id) {
  return "flight_record/" + std::to_string(reducer_id) + "/" + std::to_string(rank);
}

std::string note_key_of(int rank, std::int64_t reducer_id, std::int64_t pass) {
  return "raised/" + std::to_string(reducer_id) + "/" + std::to_string(pass) + "/" +
         std::to_string(rank);
}
constexpr std::size_t kMostNotes = 3;      // in a text
constexpr std::size_t kLongestNote = 200;  // in bytes

using Reports = std::vector<std::optional<Failure>>;  // One entry for each rank.

// Returns the definite cause, if there is one. settle() reads no more reports once it has one.
const Failure* first_definite(const Reports& reports) {
  for (const auto& report : reports)
    if (report && report->definite) return &*report;
  return nullptr;
}

struct Silence {
  int ranks = 0;  // The number of ranks that wrote nothing.
  int suspect = kNone;
  bool is_suspected = false;  // by someone
};

// How many ranks suspect each rank; with a code, only those whose failure has it.
std::vector<int> count_suspicions(const Reports& reports, std::optional<Code> code = {}) {
  std::vector<int> votes(reports.size(), 0);
  for (const auto& report : reports) {
    if (!report || (code && report->code != *code)) continue;
    if (report->suspect >= 0 && report->suspect < static_cast<int>(reports.size()))
      ++votes[static_cast<std::size_t>(report->suspect)];
  }
  return votes;
}

// Finds the suspect when no rank has an error of its own (failure_board.h).
Silence silence_of(const Reports& reports, const std::vector<bool>& unreadable, bool is_peer_lost) {
  LOCKSTEP_CHECK_EQ(unreadable.size(), reports.size());
  const std::vector<int> votes = count_suspicions(reports);
  // Two silent ranks may be suspected equally often. A rank that fails reports before it closes its
  // connections, so one that closed them in silence is gone; the other one may wait for a third.
  const std::vector<int> closed = count_suspicions(reports, Code::kPeerLost);
  Silence silence;
  int most = 0;
  int most_closed = 0;
  for (std::size_t r = 0; r < reports.size(); ++r) {
    if (reports[r] || unreadable[r]) continue;
    ++silence.ranks;
    if (silence.suspect != kNone && std::pair(votes[r], closed[r]) <= std::pair(most, most_closed))
      continue;
    silence.suspect = static_cast<int>(r);
    most = votes[r];
    most_closed = closed[r];
  }
  // Rather than a silent rank that nobody suspects, it is one that others suspect, and whose report
  // cannot be read.
  for (std::size_t r = 0; silence.ranks > 0 && r < reports.size(); ++r) {
    if (!unreadable[r] || votes[r] <= most) continue;
    silence.suspect = static_cast<int>(r);
    most = votes[r];
  }
  silence.is_suspected = most > 0;
  LOCKSTEP_CHECK_EQ(silence.suspect == kNone, silence.ranks == 0);
  LOCKSTEP_CHECK(silence.suspect == kNone || !reports[static_cast<std::size_t>(silence.suspect)]);
  if (is_peer_lost && silence.ranks > 1 && most == 0) silence.suspect = kNone;
  return silence;
}

using Progress = std::tuple<std::int64_t, std::int64_t>;

// The pass comes first, because sequence numbers count within a group, and there may be two groups
// (P14).
Progress progress_of(const Failure& report) { return {report.pass, report.sequence}; }

// If all ranks wrote a report and none has a definite cause, the rank that had made the least
// progress held up the others.
const Failure* least_progress(const Reports& reports) {
  LOCKSTEP_CHECK(first_definite(reports) == nullptr);
  const Failure* least = nullptr;
  for (const auto& report : reports) {
    if (!report) continue;
    if (least == nullptr || progress_of(*report) < progress_of(*least)) least = &*report;
  }
  return least;
}

// The report of a circle of suspicions that comes first, where `report` is a part of the circle: a
// rank whose link broke comes before those that saw peers close, which these may have done because
// of it. Of silent ranks it is the one to which most ranks point, as a rank that nobody can reach
// suspects others, and all of these suspect that rank. Then comes the lowest rank.
const Failure* first_of_circle(const Reports& reports, const Failure* report) {
  const std::vector<int> votes = count_suspicions(reports);
  const auto order_of = [&](const Failure& each) {
    const bool is_silence = each.code == Code::kTimeout;
    return std::tuple(each.code != Code::kTransport,
                      is_silence ? -votes[static_cast<std::size_t>(each.suspect)] : 0,
                      each.reported_by);
  };
  const Failure* first = report;
  const Failure* each = report;
  std::size_t steps = 0;
  do {
    LOCKSTEP_CHECK_LT(steps, reports.size());  // It is a circle, and each report is in it once.
    ++steps;
    const auto next = static_cast<std::size_t>(each->suspect);
    LOCKSTEP_CHECK_LT(next, reports.size());
    LOCKSTEP_CHECK(reports[next].has_value());
    each = &*reports[next];
    if (order_of(*each) < order_of(*first)) first = each;
  } while (each != report);
  return first;
}

// Each rank suspects the one that it waited for, which may have waited itself: the report at which
// the chain of suspicions ends, as it suspects nobody. Two ranks suspect each other when the link
// between them broke: a chain that runs into such a circle ends with its first report. A chain that
// runs to a rank whose report cannot be read ends with the report that suspects this rank.
const Failure* end_of_suspicions(const Reports& reports, const Failure* first) {
  LOCKSTEP_CHECK(first != nullptr);
  const Failure* report = first;
  for (std::size_t steps = 0; steps < reports.size(); ++steps) {
    if (report->suspect == kNone) return report;
    const auto next = static_cast<std::size_t>(report->suspect);
    if (report->suspect < 0 || next >= reports.size()) return first;
    if (!reports[next]) return report;
    report = &*reports[next];
  }
  return first_of_circle(reports, report);  // more steps than there are ranks lead into it
}

// Returns whether a rank suspects itself, because no other rank answered it.
bool suspects_itself(const Failure& report) {
  return report.code == Code::kTimeout && report.rank == report.reported_by &&
         report.suspect == report.reported_by;
}

// Returns the first report of a rank that suspects itself, if another rank says that it waited,
// too. If no other rank does, all of them may have hung until they heard from the first one.
const Failure* suspicion_of_itself(const Reports& reports) {
  for (const auto& report : reports) {
    if (!report || !suspects_itself(*report)) continue;
    const bool has_waited = std::any_of(reports.begin(), reports.end(), [&](const auto& other) {
      return other && other->code == Code::kTimeout && other->rank == other->reported_by &&
             other->rank != report->rank;
    });
    if (has_waited) return &*report;
  }
  return nullptr;
}

// Whether a report says that a rank was silent, two ranks or more say so, and fewer say it of any
// other one.
bool is_silence_to_most(const Reports& reports, const Failure& report) {
  const bool is_of_a_rank =
      report.suspect >= 0 && report.suspect < static_cast<int>(reports.size());
  if (report.code != Code::kTimeout || report.definite || !is_of_a_rank) return false;
  const std::vector<int> votes = count_suspicions(reports);
  const int most = votes[static_cast<std::size_t>(report.suspect)];
  LOCKSTEP_CHECK_GE(most, 1);  // The report is one of them.
  return most > 1 &&
         std::count_if(votes.begin(), votes.end(), [&](int each) { return each >= most; }) == 1;
}

// Whether a rank that waits for nobody it could name is the one that others wait for.
bool holds_up_others(const Reports& reports, const Failure& report) {
  LOCKSTEP_CHECK_LT(static_cast<std::size_t>(report.reported_by), reports.size());
  return report.code == Code::kTimeout && report.rank == kNone && report.suspect == kNone &&
         count_suspicions(reports)[static_cast<std::size_t>(report.reported_by)] > 0;
}

// Returns whether a rank waited, does not know for whom, and no rank says that it waited for this
// one. Peers that learned from it that the group ended suspect it, but did not wait for it; they
// may have waited in an earlier collective for the same rank.
bool is_wait_without_name(const Reports& reports, const Failure& report) {
  LOCKSTEP_CHECK_LT(static_cast<std::size_t>(report.reported_by), reports.size());
  if (report.code != Code::kTimeout || report.definite || report.suspect != kNone) return false;
  const auto rank = static_cast<std::size_t>(report.reported_by);
  return count_suspicions(reports)[rank] == count_suspicions(reports, Code::kAborted)[rank];
}

// Who is silent and suspected by nobody may have been done before, and have nothing to tell: then
// it is the rank at which others' suspicions end, if there is one.
const Failure* suspected_by_others(const Reports& reports) {
  LOCKSTEP_CHECK(first_definite(reports) == nullptr);
  const Failure* least = nullptr;
  for (const auto& report : reports) {
    if (!report) continue;
    const Failure* const end = end_of_suspicions(reports, &*report);
    if (end == &*report) continue;
    if (least == nullptr || progress_of(*end) < progress_of(*least)) least = end;
  }
  return least;
}

// Returns whether a rank has lost a peer and does not know which one: NCCL does not say it.
bool is_loss_without_name(const Failure& report) {
  return report.code == Code::kPeerLost && report.rank == kNone && report.suspect == kNone;
}

// What the reports of a group show.
struct Evidence {
  const Reports& reports;
  const Silence& silence;
};

// Whom a rule takes for the one that stopped the others.
struct Cause {
  const Failure* report = nullptr;  // what a rank reports; null: the silent rank
};

std::optional<Cause> by_report(const Failure* report) {
  return report == nullptr ? std::nullopt : std::optional(Cause{report});
}

// Where the suspicions of others end, if nobody suspects a rank that is silent.
const Failure* end_beside_silence(const Evidence& evidence) {
  const bool may_be_done = evidence.silence.ranks > 0 && !evidence.silence.is_suspected;
  return may_be_done ? suspected_by_others(evidence.reports) : nullptr;
}

std::optional<Cause> own_error(const Evidence& evidence) {
  return by_report(first_definite(evidence.reports));
}
std::optional<Cause> unanswered_roll_call(const Evidence& evidence) {
  if (evidence.silence.is_suspected) return std::nullopt;
  return by_report(suspicion_of_itself(evidence.reports));
}
std::optional<Cause> least_far(const Evidence& evidence) {
  if (evidence.silence.ranks > 0) return std::nullopt;
  const Failure* const least = least_progress(evidence.reports);
  return by_report(least->suspect == kNone ? least : nullptr);
}
std::optional<Cause> whom_the_least_far_suspects(const Evidence& evidence) {
  if (evidence.silence.ranks > 0) return std::nullopt;
  return by_report(end_of_suspicions(evidence.reports, least_progress(evidence.reports)));
}
std::optional<Cause> awaited_without_name(const Evidence& evidence) {
  const Failure* const end = end_beside_silence(evidence);
  const bool is_it = end != nullptr && evidence.silence.suspect != kNone &&
                     is_wait_without_name(evidence.reports, *end);
  return is_it ? std::optional(Cause{}) : std::nullopt;
}
std::optional<Cause> lost_without_name(const Evidence& evidence) {
  const Failure* const end = end_beside_silence(evidence);
  const bool is_it = end != nullptr && evidence.silence.suspect != kNone &&
                     evidence.silence.ranks == 1 && is_loss_without_name(*end);
  return is_it ? std::optional(Cause{}) : std::nullopt;
}
std::optional<Cause> suspected_beside_silence(const Evidence& evidence) {
  return by_report(end_beside_silence(evidence));
}
std::optional<Cause> silent(const Evidence& evidence) {
  return evidence.silence.suspect == kNone ? std::nullopt : std::optional(Cause{});
}

// The rules, in their order: of what evidence whom, and why. The first one of which there is
// evidence names the cause. The test has reports for each, by its number.
using Rule = std::optional<Cause> (*)(const Evidence&);
constexpr Rule kRules[] = {
    // 1. A rank has an error of its own: that rank, of several the lowest one, as all that the
    //    others saw came of it.
    own_error,
    // 2. A rank suspects itself, because nobody answered its roll call, another one says that it
    //    has waited, and nobody suspects a rank that is silent: that rank, as its links are broken.
    //    If nobody else has waited, all of them may have hung until they heard from it.
    unanswered_roll_call,
    // 3. All ranks have reported, and the one that got least far suspects nobody: what that rank
    //    reports, as the others waited for it.
    least_far,
    // 4. All ranks have reported, and the one that got least far suspects another one: the report
    //    at which these suspicions end, as each rank waited for the next one. Where they run in a
    //    circle, as the two ends of a broken link suspect each other, it is the report of a rank
    //    whose link broke, else of the rank that most find silent, else of the lowest one.
    whom_the_least_far_suspects,
    // 5. Nobody suspects the silent rank, and others' suspicions end at a rank that waited, and
    //    does not know for whom: the silent rank, as that one waited for it.
    awaited_without_name,
    // 6. Nobody suspects the silent rank, it is the only one, and others' suspicions end at a rank
    //    that lost a peer without a name (NCCL does not say which it is): the silent rank, as it is
    //    that peer. Of several silent ranks none is named.
    lost_without_name,
    // 7. Nobody suspects the silent rank, and others are suspected: the report at which these
    //    suspicions end, as a rank that was done before has nothing to tell.
    suspected_beside_silence,
    // 8. A rank is silent: the one that most ranks suspect, or the lowest one, as a rank that is
    //    gone, or hangs, writes nothing.
    silent,
};

std::optional<Cause> cause_of(const Evidence& evidence) {
  for (const Rule rule : kRules)
    if (std::optional<Cause> cause = rule(evidence)) return cause;
  return std::nullopt;
}

// The rank, the suspect and the text name the same one. What a rank saw of it, such as that it had
// left, is the text.
void blame_silent(const Reports& reports, bool has_note, Failure& failure, int silent) {
  LOCKSTEP_CHECK(!failure.definite);
  LOCKSTEP_CHECK_GE(silent, 0);
  const bool is_named = failure.suspect == silent;
  failure.rank = failure.suspect = silent;
  if (is_named) return;
  const auto seen = std::find_if(reports.begin(), reports.end(), [silent](const auto& report) {
    return report && report->suspect == silent;
  });
  failure.detail = "rank " + std::to_string(silent) + " has reported no cause of its own";
  if (seen != reports.end())
    failure.detail += "; rank " + std::to_string((*seen)->reported_by) + " saw: " + (*seen)->detail;
  else if (!has_note)
    failure.detail += ": it is gone, or it hangs, or it has not come to this collective";
}

// Whether the failure of a rank says what that which it raises does not.
bool says_more(const Failure& own, const Failure& raised) {
  const auto place = [](const Failure& each) {
    return std::tuple(each.code, each.pass, each.bucket, each.sequence);
  };
  return own.detail != raised.detail || place(own) != place(raised);
}

}  // namespace

FailureBoard::FailureBoard(std::shared_ptr<Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size) {
  LOCKSTEP_CHECK(store_ != nullptr);
  LOCKSTEP_CHECK_GE(rank_, 0);
  LOCKSTEP_CHECK_LT(rank_, size_);
}

void FailureBoard::publish(const Failure& own) {
  // A store that cannot be reached must not hide the failure itself; peers then suspect this rank
  // because it is silent.
  Failure report = own;
  report.reported_by = rank_;  // Peers look for this field.
  (void)store_->set(key_of(rank_), encode(report));
}

// Returns the report of `writer`, if that rank can have written it.
std::optional<Failure> FailureBoard::read(std::string_view bytes, int writer) const {
  std::optional<Failure> report = read_failure(bytes, size_);
  if (report && report->reported_by != writer) report.reset();
  return report;
}

void FailureBoard::leave_note(std::int64_t reducer_id, std::int64_t pass, std::string_view reason) {
  // The caller raises the reason itself, whether or not its peers can read it.
  if (size_ == 1) return;
  (void)store_->set(note_key_of(rank_, reducer_id, pass), reason.substr(0, 2 * kLongestNote));
}

// Reads the notes of the suspect, and of further ranks that have no report, or that others suspect.
// A note is written before anybody can have waited long for its rank, so this does not wait.
FailureBoard::Notes FailureBoard::read_notes(const Reports& reports, int suspect,
                                             std::int64_t reducer_id, std::int64_t pass) const {
  Notes notes;
  const auto read = [&](int r) {
    if (r == rank_ || notes.size() == kMostNotes) return;
    const Result<std::string> note =
        store_->get(note_key_of(r, reducer_id, pass), platform::Deadline::in({}));
    if (note) notes[r] = quoted(*note, kLongestNote);
  };
  const std::vector<int> votes = count_suspicions(reports);
  if (suspect != kNone) read(suspect);
  for (int r = 0; r < size_; ++r)
    if (!reports[static_cast<std::size_t>(r)] || votes[static_cast<std::size_t>(r)] > 0) read(r);
  return notes;
}

Failure FailureBoard::settle(Failure own, platform::Duration grace, std::int64_t reducer_id) {
  LOCKSTEP_CHECK(is_possible(own, size_));
  if (own.definite || size_ == 1) return own;
  own.reported_by = rank_;
  const platform::Deadline deadline = platform::Deadline::in(grace);
  Reports reports(static_cast<std::size_t>(size_));
  std::vector<bool> unreadable(reports.size(), false);
  reports[static_cast<std::size_t>(rank_)] = own;
  const auto read_reports = [&] {
    for (int r = 0; r < size_ && first_definite(reports) == nullptr; ++r) {
      const auto writer = static_cast<std::size_t>(r);
      if (reports[writer]) continue;
      const Result<std::string> bytes = store_->get(key_of(r), deadline);
      if (!bytes) continue;
      reports[writer] = read(*bytes, r);
      unreadable[writer] = !reports[writer];
    }
  };
  read_reports();
  // A rank that was silent may have reported since, and closed its connections; the reports that
  // were read after that suspect it. The time is over, so this waits no more.
  read_reports();

  Failure settled = own;
  const Silence silence = silence_of(reports, unreadable, own.code == Code::kPeerLost);
  const std::optional<Cause> cause = cause_of({reports, silence});
  const bool is_silent = cause && cause->report == nullptr;
  Notes notes;
  if (reducer_id != kNone && own.pass != kNone && first_definite(reports) == nullptr)
    notes = read_notes(reports, is_silent ? silence.suspect : own.suspect, reducer_id, own.pass);
  if (is_silent) blame_silent(reports, notes.count(silence.suspect) > 0, settled, silence.suspect);
  if (cause && cause->report != nullptr) {
    const Failure& report = *cause->report;
    if (report.definite || report.reported_by != rank_) settled = report;
    if (suspects_itself(report) && &report != suspicion_of_itself(reports)) settled.suspect = kNone;
    // 9. Others wait for a rank that waited, and does not know for whom: that rank, as a machine
    //    that stalls may let its wait end before the group notices.
    if (holds_up_others(reports, report)) settled.rank = settled.suspect = report.reported_by;
    if (is_silence_to_most(reports, settled)) settled.rank = settled.suspect;
  }
  settled.reported_by = rank_;
  // A rank that aborts its group may name no pass, but the abort has reached this rank in one.
  if (settled.pass == kNone) settled.pass = own.pass;
  if (settled.collective.empty()) {
    settled.collective = own.collective;
    settled.sequence = own.sequence;
    // The bucket and its reducer are set together; name_parameters() adds the bucket's parameters.
    if (settled.bucket == kNone && settled.parameters.empty()) {
      settled.bucket = own.bucket;
      settled.reducer_id = own.reducer_id;
    }
  }
  if (says_more(own, settled)) {
    own.later.clear();
    settled.later.push_back("rank " + std::to_string(rank_) + " saw: " + own.to_string());
  }
  for (const auto& [rank, reason] : notes)
    settled.detail += "; rank " + std::to_string(rank) + " raised in pass " +
                      std::to_string(own.pass) + " before it had launched anything: " + reason;
  for (std::size_t r = 0; r < unreadable.size(); ++r)
    if (unreadable[r])
      settled.later.push_back("rank " + std::to_string(r) +
                              " left a report of a failure that cannot be read: it is damaged, or "
                              "of another version of the library");
  LOCKSTEP_CHECK(is_possible(settled, size_));
  return settled;
}

void FailureBoard::publish(const FlightRecord& own) {
  LOCKSTEP_CHECK_EQ(own.rank, rank_);
  // As above, a store that cannot be reached must not hide the failure.
  (void)store_->set(flight_record_key_of(rank_, own.reducer_id), to_text(own));
}

std::vector<FlightRecord> FailureBoard::records(FlightRecord own, platform::Deadline deadline) {
  LOCKSTEP_CHECK_EQ(own.rank, rank_);
  LOCKSTEP_CHECK_EQ(own.size, size_);
  std::vector<FlightRecord> records;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const Result<std::string> text = store_->get(flight_record_key_of(r, own.reducer_id), deadline);
    if (!text) continue;
    // A record of another version of the library counts as none.
    Result<FlightRecord> record = read_flight_record(*text);
    if (record && record->rank == r && record->size == size_ &&
        record->reducer_id == own.reducer_id)
      records.push_back(std::move(*record));
  }
  records.push_back(std::move(own));
  return records;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
