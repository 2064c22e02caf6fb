#include "reducer/diagnosis/diagnosis.h"

#include <algorithm>
#include <functional>
#include <map>

#include "reducer/base/check.h"

namespace lockstep {

std::string rank_list(const std::vector<int>& ranks) {
  // Each rank once, in ascending order, as a range shows them.
  LOCKSTEP_CHECK(std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) ==
                 ranks.end());
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last < i + 2) last = i;  // Two ranks are not written as a range.
    out += (i == 0 ? "" : " ") + std::to_string(ranks[i]);
    if (last != i) out += "-" + std::to_string(ranks[last]);
    i = last;
  }
  return out;
}

namespace {

using Side = Diagnosis::Side;

std::vector<Side> sides_at(const std::vector<FlightRecord>& records, std::int64_t sequence) {
  std::vector<Side> sides;
  for (const FlightRecord& record : records) {
    const RecordedCollective* here = record.find(sequence);
    const auto same = [here](const Side& side) {
      if (here == nullptr || !side.collective) return here == nullptr && !side.collective;
      return here->same_as(*side.collective);
    };
    auto side = std::find_if(sides.begin(), sides.end(), same);
    if (side == sides.end()) side = sides.insert(sides.end(), Side{});
    side->ranks.push_back(record.rank);
    if (here != nullptr) side->collective = *here;
  }
  LOCKSTEP_CHECK_EQ(sides.empty(), records.empty());
  std::stable_sort(sides.begin(), sides.end(),
                   [](const Side& a, const Side& b) { return a.ranks.size() > b.ranks.size(); });
  return sides;
}

// The number by which texts call a collective: the one on the group, where a record has it.
std::int64_t shown_number(const std::vector<FlightRecord>& records, std::int64_t sequence) {
  for (const std::int64_t behind : {0, 1})
    for (const FlightRecord& record : records)
      if (const RecordedCollective* const c = record.find(sequence - behind))
        return c->shown_number() + behind;
  return sequence;
}

std::string hash_of(const std::vector<FlightRecord>& records, std::int64_t sequence) {
  return "#" + std::to_string(shown_number(records, sequence));
}

// The number of the first collective that the record still holds; that of the next one if it holds
// none.
std::int64_t first_kept(const FlightRecord& record) {
  const auto kept = static_cast<std::int64_t>(record.collectives.size());
  LOCKSTEP_CHECK_LE(kept, record.next_sequence);
  return record.next_sequence - kept;
}

// Two records of which one ends before the other one begins: what lies between, one rank had not
// started and the other one has forgotten.
struct Gap {
  const FlightRecord* ends = nullptr;
  const FlightRecord* begins = nullptr;
};

std::optional<Gap> find_gap(const std::vector<FlightRecord>& records) {
  if (records.empty()) return std::nullopt;
  Gap gap{&records[0], &records[0]};
  for (const FlightRecord& record : records) {
    if (record.next_sequence < gap.ends->next_sequence) gap.ends = &record;
    if (first_kept(record) > first_kept(*gap.begins)) gap.begins = &record;
  }
  if (gap.ends->next_sequence >= first_kept(*gap.begins)) return std::nullopt;
  return gap;
}

// Finds the first sequence number, among those that all ranks still hold, at which ranks differ.
std::optional<Diagnosis::Difference> first_difference(const std::vector<FlightRecord>& records) {
  if (find_gap(records)) return std::nullopt;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  for (const FlightRecord& record : records) {
    begin = std::max(begin, first_kept(record));
    end = std::max(end, record.next_sequence);
  }
  for (std::int64_t s = begin; s < end; ++s)
    if (std::vector<Side> sides = sides_at(records, s); sides.size() > 1)
      return Diagnosis::Difference{s, std::move(sides)};
  return std::nullopt;
}

// Of sides of one size, returns the one to name: the one in the latest pass, if there is only one.
const Side* furthest(const std::vector<Side>& sides) {
  const auto pass = [](const Side& side) { return side.collective->pass; };
  LOCKSTEP_CHECK(!sides.empty());
  LOCKSTEP_CHECK(std::all_of(sides.begin(), sides.end(),
                             [](const Side& side) { return side.collective.has_value(); }));
  const Side* best = &sides[0];
  for (const Side& side : sides)
    if (pass(side) > pass(*best)) best = &side;
  const auto as_far = std::count_if(sides.begin(), sides.end(),
                                    [&](const Side& side) { return pass(side) == pass(*best); });
  return as_far == 1 ? best : nullptr;
}

void add(std::vector<int>& ranks, const std::vector<int>& more) {
  ranks.insert(ranks.end(), more.begin(), more.end());
  std::sort(ranks.begin(), ranks.end());
}

// Judges different collectives with one sequence number. Ranks that have not started theirs say
// nothing here.
void judge_difference(Diagnosis& diagnosis) {
  LOCKSTEP_CHECK(diagnosis.suspects.empty());
  LOCKSTEP_CHECK(diagnosis.difference.has_value());
  std::vector<Side> started;
  for (const Side& side : diagnosis.difference->sides)
    if (side.collective) started.push_back(side);
  if (started.size() < 2) return;
  LOCKSTEP_CHECK_GE(started[0].ranks.size(), started[1].ranks.size());
  const std::string number = hash_of(diagnosis.records, diagnosis.difference->sequence);
  if (started[0].ranks.size() > started[1].ranks.size()) {
    for (std::size_t i = 1; i < started.size(); ++i) add(diagnosis.suspects, started[i].ranks);
    diagnosis.reason = "its collective " + number + " is another one than that of most ranks";
    return;
  }
  const Side* further = furthest(started);
  if (further == nullptr) return;
  diagnosis.suspects = further->ranks;
  diagnosis.reason = "went on to pass " + std::to_string(further->collective->pass) +
                     " without the collective " + number + " of others";
}

// Finds the first failure that a rank says is its own.
void judge_failures(Diagnosis& diagnosis) {
  LOCKSTEP_CHECK(diagnosis.suspects.empty());
  const Failure* first = nullptr;
  for (const FlightRecord& record : diagnosis.records) {
    if (!record.failure || !record.failure->definite) continue;
    // A mismatch takes two ranks, and both see it.
    if (record.failure->code == Code::kMismatch) continue;
    if (record.failure->rank < 0 || record.failure->rank >= diagnosis.size) continue;
    if (first == nullptr || record.failure->pass < first->pass) first = &*record.failure;
  }
  if (first == nullptr) return;
  const bool is_received =
      first->code == Code::kCorrupted && first->suspect >= 0 && first->suspect < diagnosis.size;
  // The suspect is the rank that sent the data, not the one that checked it (F3).
  if (is_received) {
    diagnosis.suspects = {first->suspect};
    diagnosis.reason =
        "what rank " + std::to_string(first->rank) + " received from it was corrupted";
    return;
  }
  diagnosis.suspects = {first->rank};
  diagnosis.reason = "failed by itself: " + std::string(name_of(first->code));
}

// Finds ranks that aborted the group, as others say, and that have met no failure themselves: their
// users gave up, and have not used the reducer since.
void judge_aborts(Diagnosis& diagnosis) {
  LOCKSTEP_CHECK(diagnosis.suspects.empty());
  for (const FlightRecord& record : diagnosis.records) {
    if (record.failure) continue;
    const auto names_it = [&](const FlightRecord& other) {
      return other.failure && other.failure->code == Code::kAborted &&
             other.failure->rank == record.rank;
    };
    if (std::any_of(diagnosis.records.begin(), diagnosis.records.end(), names_it))
      add(diagnosis.suspects, {record.rank});
  }
  if (!diagnosis.suspects.empty()) diagnosis.reason = "aborted the group, as others say";
}

// A collective that all ranks had started failed before ranks differ. A rank that had not gone on
// by then was held up in it, or was notified of the failure.
bool has_failed_before(const Diagnosis& diagnosis) {
  LOCKSTEP_CHECK(diagnosis.difference.has_value());
  using State = RecordedCollective::State;
  const auto has_failed = [&](const FlightRecord& record) {
    // If the next collective was refused, nobody has waited for this one yet.
    const auto is_named = [&](const RecordedCollective& c) {
      return c.state == State::kInFlight && record.failure && c.bucket != kNone &&
             c.bucket == record.failure->bucket && c.pass == record.failure->pass;
    };
    return std::any_of(record.collectives.begin(), record.collectives.end(), [&](const auto& c) {
      return c.sequence < diagnosis.difference->sequence &&
             (c.state == State::kFailed || is_named(c));
    });
  };
  return std::any_of(diagnosis.records.begin(), diagnosis.records.end(), has_failed);
}

// Some ranks have started a collective that the others have not started.
void judge_progress(Diagnosis& diagnosis) {
  LOCKSTEP_CHECK(diagnosis.suspects.empty());
  if (!diagnosis.difference || diagnosis.difference->sides.size() != 2) return;
  const std::vector<Side>& sides = diagnosis.difference->sides;
  if (sides[0].collective && sides[1].collective) return;
  if (has_failed_before(diagnosis)) return;
  const bool is_first_behind = !sides[0].collective;
  const Side& behind = is_first_behind ? sides[0] : sides[1];
  const Side& ahead = is_first_behind ? sides[1] : sides[0];
  LOCKSTEP_CHECK(ahead.collective.has_value());  // All ranks without it are on one side.
  const std::string number = hash_of(diagnosis.records, diagnosis.difference->sequence);
  if (behind.ranks.size() > ahead.ranks.size()) {
    diagnosis.suspects = ahead.ranks;
    diagnosis.reason = "started the collective " + number +
                       ", which most ranks have not, or it is those ranks, which have not come "
                       "to it: the records do not tell which";
  } else {
    diagnosis.suspects = behind.ranks;
    diagnosis.reason = "has not started the collective " + number + " that the others have started";
  }
}

bool has_failed(const Diagnosis& diagnosis) {
  return std::any_of(diagnosis.records.begin(), diagnosis.records.end(),
                     [](const FlightRecord& record) { return record.failure.has_value(); });
}

// Ranks without a record are suspects. Others may have seen what became of one, as that it left:
// their failures, in the lines of these ranks, say so, and nothing else may contradict them.
void judge_silence(Diagnosis& diagnosis) {
  LOCKSTEP_CHECK(diagnosis.suspects.empty());
  diagnosis.suspects = diagnosis.silent;
  std::vector<int> witnesses;
  for (const FlightRecord& record : diagnosis.records) {
    const int suspect = record.failure ? record.failure->suspect : kNone;
    const bool is_silent =
        std::binary_search(diagnosis.silent.begin(), diagnosis.silent.end(), suspect);
    if (is_silent) witnesses.push_back(record.rank);
  }
  diagnosis.reason = "left no flight record";
  diagnosis.reason += witnesses.empty() ? ": it died, hangs, or has not met the failure yet"
                                        : "; what " + rank_list(witnesses) + " saw is below";
}

void find_odd(Diagnosis& diagnosis) {
  LOCKSTEP_CHECK(diagnosis.suspects.empty());
  LOCKSTEP_CHECK(diagnosis.reason.empty());
  if (diagnosis.difference) judge_difference(diagnosis);
  if (diagnosis.suspects.empty()) judge_failures(diagnosis);
  if (diagnosis.suspects.empty() && !diagnosis.silent.empty()) judge_silence(diagnosis);
  if (diagnosis.suspects.empty()) judge_aborts(diagnosis);
  if (diagnosis.suspects.empty()) judge_progress(diagnosis);
  LOCKSTEP_CHECK_EQ(diagnosis.suspects.empty(), diagnosis.reason.empty());
}

void find_waits(Diagnosis& diagnosis) {
  LOCKSTEP_CHECK(diagnosis.waits.empty());
  for (const FlightRecord& record : diagnosis.records) {
    const auto open = std::find_if(
        record.collectives.begin(), record.collectives.end(),
        [](const auto& c) { return c.state != RecordedCollective::State::kCompleted; });
    if (open == record.collectives.end()) continue;
    Diagnosis::Wait wait{record.rank, open->sequence, {}, diagnosis.silent};
    for (const FlightRecord& other : diagnosis.records) {
      const RecordedCollective* there = other.find(open->sequence);
      if (there == nullptr && open->sequence < other.next_sequence)
        add(wait.untold, {other.rank});
      else if (there == nullptr || !there->same_as(*open))
        add(wait.ranks, {other.rank});
    }
    LOCKSTEP_CHECK(!std::binary_search(wait.ranks.begin(), wait.ranks.end(), record.rank));
    diagnosis.waits.push_back(std::move(wait));
  }
}

std::string describe(const FlightRecord& record) {
  std::string out = "pass " + std::to_string(record.pass) + ", " + name_of(record.doing);
  if (record.next_bucket != kNone) {
    out += "; its next bucket, " + std::to_string(record.next_bucket);
    out += record.missing.empty() ? ", is complete" : ", lacks " + record.missing.to_string();
  }
  return out;
}

// What is to be said of one rank, a line each.
std::vector<std::string> told_of(const FlightRecord& record, const Diagnosis& diagnosis) {
  std::vector<std::string> lines = {describe(record)};
  for (const Diagnosis::Wait& wait : diagnosis.waits) {
    if (wait.rank != record.rank) continue;
    const char* const all = wait.untold.empty() ? ", in which all are" : "";
    lines.push_back("waits in " + hash_of(diagnosis.records, wait.sequence) +
                    (wait.ranks.empty() ? all : " for " + rank_list(wait.ranks)) +
                    (wait.untold.empty() ? "" : "; nobody can tell of " + rank_list(wait.untold)));
  }
  if (record.failure) lines.push_back(record.failure->to_string());
  return lines;
}

// More than two ranks of which the same is to be said share their lines, at the first one's place.
void tell_ranks(const Diagnosis& diagnosis, std::string& out) {
  std::map<std::vector<std::string>, std::vector<int>> alike;
  for (const FlightRecord& record : diagnosis.records)
    alike[told_of(record, diagnosis)].push_back(record.rank);
  for (const FlightRecord& record : diagnosis.records) {
    const std::vector<std::string> lines = told_of(record, diagnosis);
    const std::vector<int>& ranks = alike.at(lines);
    const bool is_shared = ranks.size() > 2;
    if (is_shared && ranks.front() != record.rank) continue;
    const std::string who = rank_list(is_shared ? ranks : std::vector<int>{record.rank});
    for (const std::string& line : lines) out += "  " + who + ": " + line + "\n";
  }
  if (!diagnosis.silent.empty()) out += "  " + rank_list(diagnosis.silent) + ": no flight record\n";
}

constexpr std::int64_t kRowsBefore = 4;
constexpr std::int64_t kRows = 12;

std::string cell(const FlightRecord& record, std::int64_t sequence) {
  const RecordedCollective* c = record.find(sequence);
  if (c == nullptr) return "-";
  return "pass " + std::to_string(c->pass) + " " + c->name() + ", " + std::to_string(c->count) +
         " " + c->dtype + ", " + name_of(c->state);
}

// Ranks whose rows are the same share a column.
struct Column {
  std::vector<int> ranks;
  std::vector<std::string> cells;
};

void tell_side_by_side(const Diagnosis& diagnosis, std::string& out) {
  std::int64_t end = 0;
  for (const FlightRecord& record : diagnosis.records) end = std::max(end, record.next_sequence);
  std::int64_t begin = end - kRows;
  if (diagnosis.difference) begin = diagnosis.difference->sequence - kRowsBefore;
  begin = std::max<std::int64_t>(begin, 0);
  end = std::min(end, begin + kRows);
  if (begin >= end) return;
  LOCKSTEP_CHECK_LE(end - begin, kRows);
  std::vector<Column> columns;
  for (const FlightRecord& record : diagnosis.records) {
    std::vector<std::string> cells;
    for (std::int64_t s = begin; s < end; ++s) cells.push_back(cell(record, s));
    auto same = std::find_if(columns.begin(), columns.end(),
                             [&](const Column& column) { return column.cells == cells; });
    if (same == columns.end()) same = columns.insert(columns.end(), Column{{}, cells});
    same->ranks.push_back(record.rank);
  }
  std::vector<std::string> lines(static_cast<std::size_t>(end - begin) + 1, "  #");
  for (std::int64_t s = begin; s < end; ++s)
    lines[static_cast<std::size_t>(s - begin) + 1] =
        "  " + std::to_string(shown_number(diagnosis.records, s));
  const auto pad = [&lines] {
    std::size_t width = 0;
    for (const std::string& line : lines) width = std::max(width, line.size());
    for (std::string& line : lines) line.resize(width + 2, ' ');
  };
  for (const Column& column : columns) {
    LOCKSTEP_CHECK_EQ(column.cells.size() + 1, lines.size());
    pad();
    lines[0] += rank_list(column.ranks);
    for (std::size_t i = 0; i < column.cells.size(); ++i) lines[i + 1] += column.cells[i];
  }
  out += "the collectives, side by side:\n";
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
}

Status check_group(const std::vector<FlightRecord>& records) {
  if (records.empty())
    return Status(Code::kInvalidArgument, "there is no flight record of any rank");
  for (std::size_t i = 0; i < records.size(); ++i) {
    const FlightRecord& record = records[i];
    // Two records of one rank are neighbours.
    if (i > 0) LOCKSTEP_CHECK_LE(records[i - 1].rank, record.rank);
    if (record.size != records[0].size)
      return Status(Code::kInvalidArgument, "the flight records are of different groups: rank " +
                                                std::to_string(records[0].rank) + " is one of " +
                                                std::to_string(records[0].size) + " ranks, rank " +
                                                std::to_string(record.rank) + " one of " +
                                                std::to_string(record.size));
    if (record.reducer_id != records[0].reducer_id)
      return Status(Code::kInvalidArgument,
                    "the flight records are of different reducers on one group");
    if (i > 0 && record.rank == records[i - 1].rank)
      return Status(Code::kInvalidArgument,
                    "there are two flight records of rank " + std::to_string(record.rank));
  }
  return {};
}

}  // namespace

bool Diagnosis::clean() const {
  return suspects.empty() && silent.empty() && waits.empty() && !difference && !has_failed(*this) &&
         !find_gap(records);
}

std::string Diagnosis::to_string() const {
  const std::string all = std::to_string(size) + (size == 1 ? " rank" : " ranks");
  if (clean()) return all + ": nothing differs, nobody waits, nothing failed\n";
  std::string out = all + ", ";
  out += suspects.empty() ? "no suspect\n"
                          : (suspects.size() == 1 ? "suspect: " : "suspects: ") +
                                rank_list(suspects) + " (" + reason + ")\n";
  if (difference) {
    LOCKSTEP_CHECK_LT(1u, difference->sides.size());
    out += "the first difference that the records show is in collective " +
           hash_of(records, difference->sequence) + ":\n";
    for (const Side& side : difference->sides)
      out += "  " + rank_list(side.ranks) + ": " +
             (side.collective ? side.collective->to_string() : "not started") + "\n";
  } else if (const std::optional<Gap> gap = find_gap(records)) {
    out += "the flight record of rank " + std::to_string(gap->ends->rank) + " ends before " +
           hash_of(records, gap->ends->next_sequence) + ", and that of rank " +
           std::to_string(gap->begins->rank) + " begins with " +
           hash_of(records, first_kept(*gap->begins)) +
           ": nobody can tell where they first differ\n";
  } else {
    out += "the collectives that all records hold do not differ\n";
  }
  out += "where each rank is:\n";
  tell_ranks(*this, out);
  tell_side_by_side(*this, out);
  return out;
}

Result<Diagnosis> diagnose(std::vector<FlightRecord> records) {
  std::sort(records.begin(), records.end(),
            [](const FlightRecord& a, const FlightRecord& b) { return a.rank < b.rank; });
  if (Status status = check_group(records); !status.ok()) return failed(std::move(status));
  Diagnosis diagnosis;
  diagnosis.size = records[0].size;
  std::size_t at = 0;
  for (int rank = 0; rank < diagnosis.size; ++rank) {
    if (at < records.size() && records[at].rank == rank)
      ++at;
    else
      diagnosis.silent.push_back(rank);
  }
  LOCKSTEP_CHECK_EQ(at, records.size());  // Each is the record of a rank of the group.
  diagnosis.records = std::move(records);
  diagnosis.difference = first_difference(diagnosis.records);
  find_odd(diagnosis);
  find_waits(diagnosis);
  return diagnosis;
}

}  // namespace lockstep
