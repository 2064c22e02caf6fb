// Claim: every sentence of a diagnosis is true of what the ranks did, however much of it their
// records have forgotten (F6).
//
// Method: a seed draws what ranks did: the collectives that each of them started and completed, who
// stopped or went another way, who failed. Of that each rank has a record of the last few, or none.
// The text is read line by line, and each line is judged by what was drawn, not by the records. A
// line that is not known here fails, too.
//
// A failure prints the seed and the text: run it again with that seed alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "reducer/diagnosis/diagnosis.h"

namespace lockstep::diagnosis_property {
namespace {

using State = RecordedCollective::State;
using Random = std::mt19937_64;
using Ranks = std::vector<int>;

int below(Random& random, std::size_t end) { return static_cast<int>(random() % end); }
bool percent(Random& random, int chance) { return below(random, 100) < chance; }

// What one rank did.
struct RankTruth {
  std::vector<RecordedCollective> started;  // from #0 on
  std::optional<Failure> failure;
  bool is_silent = false;
  int kept = 0;  // collectives of its record
};

struct Truth {
  std::vector<RankTruth> ranks;

  int size() const { return static_cast<int>(ranks.size()); }
  const RankTruth& at(int rank) const { return ranks[static_cast<std::size_t>(rank)]; }
  const RecordedCollective* collective(int rank, std::int64_t sequence) const {
    const auto& started = at(rank).started;
    const auto index = static_cast<std::size_t>(sequence);
    return index < started.size() ? &started[index] : nullptr;
  }
  // Whether both ranks started the same collective, or neither has come so far.
  bool are_alike(int one, int other, std::int64_t sequence) const {
    const RecordedCollective* const a = collective(one, sequence);
    const RecordedCollective* const b = collective(other, sequence);
    return a == nullptr || b == nullptr ? a == b : a->same_as(*b);
  }
  bool is_open(int rank, std::int64_t sequence) const {
    const RecordedCollective* const it = collective(rank, sequence);
    return it != nullptr && it->state != State::kCompleted;
  }
  Ranks with_records() const {
    Ranks all;
    for (int r = 0; r < size(); ++r)
      if (!at(r).is_silent) all.push_back(r);
    return all;
  }
  std::int64_t most() const {
    std::size_t most = 0;
    for (const RankTruth& rank : ranks) most = std::max(most, rank.started.size());
    return static_cast<std::int64_t>(most);
  }
  // The first number at which ranks with a record differ.
  std::optional<std::int64_t> first_difference() const {
    const Ranks all = with_records();
    for (std::int64_t s = 0; s < most(); ++s)
      for (const int rank : all)
        if (!are_alike(all.front(), rank, s)) return s;
    return std::nullopt;
  }
};

RecordedCollective collective(std::int64_t sequence, int buckets) {
  RecordedCollective made;
  made.sequence = sequence;
  made.pass = sequence / buckets;
  made.bucket = static_cast<int>(sequence % buckets);
  made.op = "all_reduce";
  made.count = 2 + made.bucket;
  made.layout_hash = 77;
  made.state = State::kCompleted;
  return made;
}

// All ranks start the collectives before #`meets`, and some go on from there, each in one of a few
// ways.
Truth draw(Random& random) {
  Truth truth;
  const int world = 1 + below(random, 6);
  const int buckets = 1 + below(random, 3);
  const int meets = below(random, 9);
  const bool stops = percent(random, 70);
  const bool differs = percent(random, 40);
  const bool fails = percent(random, 50);
  for (int r = 0; r < world; ++r) {
    RankTruth& rank = truth.ranks.emplace_back();
    for (int s = 0; s < meets; ++s) rank.started.push_back(collective(s, buckets));
    const bool goes_on = stops && percent(random, 60);
    const bool is_other = goes_on && differs && percent(random, 40);
    for (int s = meets; goes_on && s <= meets + below(random, 3); ++s) {
      RecordedCollective& next = rank.started.emplace_back(collective(s, buckets));
      if (is_other) next.count += 5;
      if (is_other && percent(random, 50)) next.pass += 1;
    }
    // They end in order. A broadcast ends on its root when it has sent all.
    const int completed = meets + (percent(random, 10) ? 1 : 0) - (percent(random, 20) ? 1 : 0);
    for (RecordedCollective& each : rank.started)
      if (each.sequence >= completed) each.state = fails ? State::kFailed : State::kInFlight;
    rank.is_silent = r > 0 && percent(random, 15);
    rank.kept = percent(random, 60) ? 100 : 1 + below(random, 6);
    if (!fails || percent(random, 20)) continue;
    Failure& failure = rank.failure.emplace();
    failure.code = Code::kTimeout;
    failure.rank = failure.reported_by = r;
    failure.pass = meets / buckets;
    failure.suspect = percent(random, 50) ? below(random, static_cast<std::size_t>(world)) : kNone;
    failure.definite = percent(random, 15);
    if (failure.definite) failure.code = Code::kUserFailure;
    if (failure.suspect == r || failure.definite) failure.suspect = kNone;
  }
  return truth;
}

std::vector<FlightRecord> records_of(const Truth& truth) {
  std::vector<FlightRecord> records;
  for (const int r : truth.with_records()) {
    FlightRecord record;
    record.rank = r;
    record.size = truth.size();
    const auto& started = truth.at(r).started;
    const auto kept = std::min(started.size(), static_cast<std::size_t>(truth.at(r).kept));
    record.collectives.assign(started.end() - static_cast<std::ptrdiff_t>(kept), started.end());
    record.next_sequence = static_cast<std::int64_t>(started.size());
    record.failure = truth.at(r).failure;
    records.push_back(std::move(record));
  }
  return records;
}

// "ranks 0 2-4", as rank_list() writes it.
Ranks read_ranks(std::istringstream& words) {
  Ranks ranks;
  std::string word;
  words >> word;  // "rank" or "ranks"
  EXPECT_TRUE(word == "rank" || word == "ranks") << word;
  while (words >> std::ws && std::isdigit(words.peek()) != 0) {
    int first = 0;
    words >> first;
    int last = first;
    if (words.peek() == '-') words.ignore(), words >> last;
    for (int r = first; r <= last; ++r) ranks.push_back(r);
  }
  return ranks;
}

Ranks ranks_in(const std::string& text) {
  std::istringstream words(text);
  return read_ranks(words);
}

std::int64_t number_after(const std::string& text, const std::string& before) {
  const std::size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << "no '" << before << "' in: " << text;
  return at == std::string::npos ? kNone : std::stoll(text.substr(at + before.size()));
}

bool begins(const std::string& text, const char* with) { return text.starts_with(with); }

// Judges the lines of one text.
class Judge {
 public:
  Judge(const Truth& truth, const Diagnosis& diagnosis) : truth_(truth), diagnosis_(diagnosis) {}

  void judge() {
    std::istringstream lines(diagnosis_.to_string());
    std::string line;
    std::getline(lines, line);
    judge_head(line);
    while (std::getline(lines, line) && !begins(line, "the collectives, side by side:"))
      judge_line(line);
  }

 private:
  // What has to hold of all ranks with a record but those of `ranks`.
  bool all_but(const Ranks& ranks, const std::function<bool(int)>& holds) const {
    const Ranks all = truth_.with_records();
    return std::all_of(all.begin(), all.end(), [&](int r) {
      return std::find(ranks.begin(), ranks.end(), r) != ranks.end() || holds(r);
    });
  }
  static bool all_of(const Ranks& ranks, const std::function<bool(int)>& holds) {
    return std::all_of(ranks.begin(), ranks.end(), holds);
  }

  void judge_head(const std::string& line) {
    if (line.find(": nothing differs, nobody waits, nothing failed") != std::string::npos) {
      EXPECT_FALSE(truth_.first_difference().has_value());
      EXPECT_TRUE(
          all_but({}, [&](int r) { return !truth_.at(r).failure && first_open(r) == kNone; }));
      return;
    }
    const std::size_t at = line.find(", suspect");
    if (at == std::string::npos) {
      EXPECT_NE(line.find(", no suspect"), std::string::npos) << line;
      return;
    }
    std::string rest = line.substr(line.find(": ", at) + 2);
    const Ranks suspects = ranks_in(rest.substr(0, rest.find(" (")));
    EXPECT_FALSE(suspects.empty());
    judge_reason(suspects, rest.substr(rest.find(" (") + 2));
  }

  void judge_reason(const Ranks& suspects, const std::string& reason) {
    const auto has_record = [&](int r) { return !truth_.at(r).is_silent; };
    if (begins(reason, "its collective #")) {
      const std::int64_t s = number_after(reason, "#");
      // Most of those that started one started the same.
      EXPECT_TRUE(all_but(suspects, [&](int r) {
        return truth_.collective(r, s) == nullptr ||
               all_of(suspects, [&](int x) { return !truth_.are_alike(x, r, s); });
      }));
    } else if (begins(reason, "went on to pass ")) {
      const std::int64_t s = number_after(reason, "#");
      const std::int64_t pass = number_after(reason, "pass ");
      EXPECT_TRUE(all_of(suspects, [&](int x) { return truth_.collective(x, s)->pass == pass; }));
      EXPECT_TRUE(all_but(suspects, [&](int r) {
        const RecordedCollective* const there = truth_.collective(r, s);
        return there == nullptr || there->pass < pass;
      }));
    } else if (begins(reason, "failed by itself")) {
      EXPECT_TRUE(all_of(suspects, [&](int x) {
        return has_record(x) && truth_.at(x).failure && truth_.at(x).failure->definite;
      }));
    } else if (begins(reason, "left no flight record")) {
      EXPECT_FALSE(std::any_of(suspects.begin(), suspects.end(), has_record));
    } else if (begins(reason, "started the collective #")) {
      const std::int64_t s = number_after(reason, "#");
      EXPECT_TRUE(all_of(suspects, [&](int x) { return truth_.collective(x, s) != nullptr; }));
      EXPECT_TRUE(all_but(suspects, [&](int r) { return truth_.collective(r, s) == nullptr; }));
    } else if (begins(reason, "has not started the collective #")) {
      const std::int64_t s = number_after(reason, "#");
      EXPECT_TRUE(all_of(suspects, [&](int x) { return truth_.collective(x, s) == nullptr; }));
      EXPECT_TRUE(all_but(suspects, [&](int r) { return truth_.collective(r, s) != nullptr; }));
    } else {
      ADD_FAILURE() << "an unknown reason: " << reason;
    }
  }

  std::int64_t first_open(int rank) const {
    for (std::int64_t s = 0; s < truth_.most(); ++s)
      if (truth_.is_open(rank, s)) return s;
    return kNone;
  }

  void judge_line(const std::string& line) {
    if (begins(line, "the first difference that the records show is in collective #")) {
      difference_ = number_after(line, "#");
      EXPECT_EQ(first_shared_difference(), difference_);
    } else if (begins(line, "the collectives that all records hold do not differ")) {
      EXPECT_FALSE(first_shared_difference().has_value());
    } else if (begins(line, "the flight record of rank ")) {
      const auto one = static_cast<int>(number_after(line, "record of rank "));
      const auto other = static_cast<int>(number_after(line, "that of rank "));
      const std::int64_t end = number_after(line, "ends before #");
      const std::int64_t begin = number_after(line, "begins with #");
      EXPECT_EQ(static_cast<std::int64_t>(truth_.at(one).started.size()), end);
      EXPECT_EQ(static_cast<std::int64_t>(truth_.at(other).started.size()) - begin,
                std::min<std::int64_t>(truth_.at(other).kept,
                                       static_cast<std::int64_t>(truth_.at(other).started.size())));
      EXPECT_LT(end, begin);
    } else if (begins(line, "where each rank is:")) {
      difference_ = kNone;
    } else if (difference_ != kNone) {
      judge_side(line);
    } else {
      judge_rank(line);
    }
  }

  // "  ranks 0 2: not started"
  void judge_side(const std::string& line) {
    const Ranks ranks = ranks_in(line);
    const std::string what = line.substr(line.find(": ") + 2);
    EXPECT_TRUE(all_of(ranks, [&](int r) {
      const RecordedCollective* const there = truth_.collective(r, difference_);
      return what == (there == nullptr ? "not started" : there->to_string());
    })) << line;
  }

  // "  rank 0: waits in #2 for rank 1; nobody can tell of rank 2"
  void judge_rank(const std::string& line) {
    if (begins(line, "  then: ")) return;
    const Ranks ranks = ranks_in(line);
    const std::string what = line.substr(line.find(": ") + 2);
    if (what == "no flight record") {
      EXPECT_TRUE(all_of(ranks, [&](int r) { return truth_.at(r).is_silent; })) << line;
    } else if (begins(what, "waits in #")) {
      for (const int rank : ranks) judge_wait(rank, what);
    } else if (!begins(what, "pass ")) {
      EXPECT_TRUE(all_of(ranks, [&](int r) {
        return truth_.at(r).failure && truth_.at(r).failure->to_string() == what;
      })) << line;
    }
  }

  void judge_wait(int rank, const std::string& what) {
    const std::int64_t s = number_after(what, "#");
    EXPECT_TRUE(truth_.is_open(rank, s)) << what;
    const std::size_t known = what.find(" for rank");
    const std::size_t unknown = what.find("nobody can tell of rank");
    const auto list = [&](std::size_t at, std::size_t words) {
      return at == std::string::npos ? Ranks() : ranks_in(what.substr(at + words));
    };
    const Ranks waited_for = list(known, 5);
    const Ranks untold = list(unknown, 19);
    const auto is_untold = [&](int r) { return std::count(untold.begin(), untold.end(), r) == 1; };
    for (int r = 0; r < truth_.size(); ++r) {
      const bool is_waited_for = std::count(waited_for.begin(), waited_for.end(), r) == 1;
      EXPECT_EQ(is_untold(r), truth_.at(r).is_silent || has_forgotten(r, s)) << what;
      EXPECT_TRUE(is_untold(r) || is_waited_for != truth_.are_alike(rank, r, s)) << what;
    }
    EXPECT_EQ(what.find("in which all are") != std::string::npos,
              waited_for.empty() && untold.empty());
  }

  // Whether the rank has started the collective, and its record no longer holds it.
  bool has_forgotten(int rank, std::int64_t sequence) const {
    const auto started = static_cast<std::int64_t>(truth_.at(rank).started.size());
    return sequence < started - std::min<std::int64_t>(truth_.at(rank).kept, started);
  }
  // The first difference in what all records hold.
  std::optional<std::int64_t> first_shared_difference() const {
    const Ranks all = truth_.with_records();
    for (std::int64_t s = 0; s < truth_.most(); ++s) {
      if (std::any_of(all.begin(), all.end(), [&](int r) { return has_forgotten(r, s); })) continue;
      for (const int rank : all)
        if (!truth_.are_alike(all.front(), rank, s)) return s;
    }
    return std::nullopt;
  }

  const Truth& truth_;
  const Diagnosis& diagnosis_;
  std::int64_t difference_ = kNone;  // that whose sides follow
};

void judge_seed(std::uint64_t seed) {
  Random random(seed);
  const Truth truth = draw(random);
  const Result<Diagnosis> diagnosis = diagnose(records_of(truth));
  ASSERT_TRUE(diagnosis.has_value());
  Judge(truth, *diagnosis).judge();
  ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << "\n" << diagnosis->to_string();
}

TEST(DiagnosisProperty, F6EverySentenceIsTrueOfWhatTheRanksDid) {
  for (std::uint64_t seed = 0; seed < 20000; ++seed) ASSERT_NO_FATAL_FAILURE(judge_seed(seed));
}

}  // namespace
}  // namespace lockstep::diagnosis_property
