// Flight records as text, and the diagnosis of those of all ranks: clauses T1 and F6.
// reducer_diagnosis_test.cc tests ranks that really run, and properties/run/diagnosis_test.cc the
// planted bugs.
#include "reducer/diagnosis/diagnosis.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Ranks = std::vector<int>;
using What = RecordedCollective::What;
using State = RecordedCollective::State;

RecordedCollective bucket(std::int64_t pass, int b, State state = State::kCompleted) {
  RecordedCollective c;
  c.pass = pass;
  c.op = "all_reduce";
  c.bucket = b;
  c.count = 2 + b;
  c.layout_hash = 77;
  c.parameters.add("p" + std::to_string(b));
  c.state = state;
  return c;
}

RecordedCollective usage_map(std::int64_t pass, State state = State::kCompleted) {
  RecordedCollective c = bucket(pass, 0, state);
  c.what = What::kUsageMap;
  c.dtype = "int32";
  c.bucket = kNone;
  c.count = 3;
  c.parameters = {};
  return c;
}

FlightRecord record(int rank, int size, std::vector<RecordedCollective> collectives,
                    std::int64_t first = 0) {
  FlightRecord made;
  made.rank = rank;
  made.size = size;
  for (RecordedCollective& c : collectives) c.sequence = first++;
  made.collectives = std::move(collectives);
  made.next_sequence = first;
  return made;
}

Failure own_failure(int rank) {
  Failure failure;
  failure.code = Code::kUserFailure;
  failure.rank = rank;
  failure.pass = 1;
  failure.definite = true;
  failure.detail = "the user's node threw";
  return failure;
}

Diagnosis of(std::vector<FlightRecord> records) {
  Result<Diagnosis> diagnosis = diagnose(std::move(records));
  EXPECT_TRUE(diagnosis.has_value()) << diagnosis.error().to_string();
  return std::move(*diagnosis);
}

TEST(Diagnosis, T1EqualAccountsGiveNone) {
  std::vector<FlightRecord> records;
  for (const int rank : {2, 0, 1})
    records.push_back(record(rank, 3, {bucket(0, 0), bucket(0, 1), usage_map(0)}));
  const Diagnosis diagnosis = of(std::move(records));
  EXPECT_TRUE(diagnosis.clean());
  EXPECT_EQ(diagnosis.to_string(), "3 ranks: nothing differs, nobody waits, nothing failed\n");
}

// The oracle found this on flight records: for a link that fell silent in #1, the diagnosis named
// the rank that was notified of the failure before it started #2.
TEST(Diagnosis, F6WhoStoppedInACollectiveThatAllHadStartedIsNotOdd) {
  const auto told = [](State state, bool is_next_refused) {
    std::vector<FlightRecord> records = {
        record(0, 3, {bucket(0, 0), bucket(0, 1), usage_map(0, State::kFailed)}),
        record(1, 3, {bucket(0, 0), bucket(0, 1, state)}),
        record(2, 3, {bucket(0, 0), bucket(0, 1), usage_map(0, State::kFailed)})};
    if (is_next_refused) {
      Failure failure = own_failure(kNone);
      failure.code = Code::kTransport;
      failure.definite = false;
      failure.pass = 0;
      failure.bucket = 1;
      records[1].failure = failure;
    }
    return of(std::move(records)).suspects;
  };
  EXPECT_EQ(told(State::kFailed, false), Ranks{});
  EXPECT_EQ(told(State::kInFlight, true), Ranks{});
  EXPECT_EQ(told(State::kCompleted, false), Ranks{1});  // It never started #2.
  EXPECT_EQ(told(State::kInFlight, false), Ranks{1});
}

TEST(Diagnosis, F6ARankThatLeftOutACollectiveIsNamedWithBothSides) {
  const State open = State::kInFlight;
  std::vector<FlightRecord> records = {
      record(0, 3, {bucket(0, 0), usage_map(0, open)}),
      record(1, 3, {bucket(0, 0), bucket(1, 0, open)}),
      record(2, 3, {bucket(0, 0), usage_map(0, open)}),
  };
  records[1].pass = 1;
  records[1].doing = FlightRecord::Doing::kBackward;
  records[1].next_bucket = 1;
  records[1].missing.add("p1");
  for (const int rank : {0, 2})
    records[static_cast<std::size_t>(rank)].doing = FlightRecord::Doing::kFinishing;
  const Diagnosis diagnosis = of(std::move(records));
  EXPECT_FALSE(diagnosis.clean());
  EXPECT_EQ(diagnosis.suspects, Ranks{1});
  ASSERT_TRUE(diagnosis.difference.has_value());
  EXPECT_EQ(diagnosis.difference->sequence, 1);
  EXPECT_EQ(diagnosis.to_string(),
            "3 ranks, suspect: rank 1 (its collective #1 is another one than that of most "
            "ranks)\n"
            "the first difference that the records show is in collective #1:\n"
            "  ranks 0 2: pass 0, all_reduce of the usage map, 3 int32\n"
            "  rank 1: pass 1, all_reduce of bucket 0 (p0), 2 float32\n"
            "where each rank is:\n"
            "  rank 0: pass 0, waiting for sums\n"
            "  rank 0: waits in #1 for rank 1\n"
            "  rank 1: pass 1, in its backward; its next bucket, 1, lacks p1\n"
            "  rank 1: waits in #1 for ranks 0 2\n"
            "  rank 2: pass 0, waiting for sums\n"
            "  rank 2: waits in #1 for rank 1\n"
            "the collectives, side by side:\n"
            "  #  ranks 0 2                              rank 1\n"
            "  0  pass 0 bucket 0, 2 float32, completed  pass 0 bucket 0, 2 float32, completed\n"
            "  1  pass 0 usage map, 3 int32, in flight   pass 1 bucket 0, 2 float32, in flight\n");
}

// A difference in any single field that ranks must agree on counts.
TEST(Diagnosis, F6OpBucketCountDtypePassAndLayoutCount) {
  const auto change = [](auto member, auto value) {
    RecordedCollective c = bucket(0, 0);
    c.*member = value;
    return c;
  };
  const std::vector<RecordedCollective> changed = {
      change(&RecordedCollective::op, std::string("broadcast")),
      change(&RecordedCollective::bucket, 1),
      change(&RecordedCollective::count, std::int64_t{9}),
      change(&RecordedCollective::dtype, std::string("float64")),
      change(&RecordedCollective::pass, std::int64_t{1}),
      change(&RecordedCollective::layout_hash, std::uint64_t{78}),
      change(&RecordedCollective::what, What::kOrder),
  };
  for (const RecordedCollective& other : changed) {
    const Diagnosis diagnosis =
        of({record(0, 3, {bucket(0, 0)}), record(1, 3, {bucket(0, 0)}), record(2, 3, {other})});
    EXPECT_EQ(diagnosis.suspects, Ranks{2}) << other.to_string();
  }
  RecordedCollective later = bucket(0, 0);
  later.launched_us = 5;
  EXPECT_TRUE(of({record(0, 2, {bucket(0, 0)}), record(1, 2, {later})}).clean());
}

// Either two ranks began what the others never run, or the others have not come to it.
TEST(Diagnosis, F6WhoIsToBlameStaysOpenWhereFewAreAhead) {
  std::vector<FlightRecord> records;
  for (int rank = 0; rank < 6; ++rank) records.push_back(record(rank, 6, {bucket(0, 0)}));
  for (const int rank : {3, 4})
    records[static_cast<std::size_t>(rank)] =
        record(rank, 6, {bucket(0, 0), bucket(0, 1, State::kInFlight)});
  const std::string text = of(std::move(records)).to_string();
  EXPECT_NE(text.find("ranks 3 4 (started the collective #1, which most ranks have not, or it is "
                      "those ranks, which have not come to it: the records do not tell which)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  ranks 0-2 5: pass"), std::string::npos) << text;
  EXPECT_NE(text.find("  rank 3: waits in #1 for ranks 0-2 5\n"), std::string::npos) << text;
}

TEST(Diagnosis, F6WithTwoRanksTheOneThatWentOnIsNamed) {
  const State open = State::kInFlight;
  const Diagnosis diagnosis = of({record(0, 2, {bucket(0, 0), usage_map(0, open)}),
                                  record(1, 2, {bucket(0, 0), bucket(1, 0, open)})});
  EXPECT_EQ(diagnosis.suspects, Ranks{1});
  EXPECT_NE(diagnosis.reason.find("went on to pass 1 without the collective #1"),
            std::string::npos);
  // In one pass nobody can tell which rank is wrong.
  const Diagnosis order = of({record(0, 2, {bucket(0, 0, open), bucket(0, 1, open)}),
                              record(1, 2, {bucket(0, 1, open), bucket(0, 0, open)})});
  EXPECT_EQ(order.suspects, Ranks{});
  ASSERT_TRUE(order.difference.has_value());
  EXPECT_EQ(order.difference->sides.size(), 2u);
  EXPECT_FALSE(order.clean());
}

TEST(Diagnosis, T1ARankThatTellsNothingIsTheOddOne) {
  std::vector<FlightRecord> records = {record(0, 3, {bucket(0, 0, State::kFailed)}),
                                       record(1, 3, {bucket(0, 0, State::kFailed)})};
  const Diagnosis diagnosis = of(std::move(records));
  EXPECT_EQ(diagnosis.silent, Ranks{2});
  EXPECT_EQ(diagnosis.suspects, Ranks{2});
  ASSERT_EQ(diagnosis.waits.size(), 2u);
  EXPECT_EQ(diagnosis.waits[0].ranks, Ranks{});
  EXPECT_EQ(diagnosis.waits[0].untold, Ranks{2});
  EXPECT_NE(diagnosis.to_string().find("rank 0: waits in #0; nobody can tell of rank 2\n"),
            std::string::npos)
      << diagnosis.to_string();
  EXPECT_FALSE(diagnosis.difference.has_value());
}

// The errors of ranks 0 and 2 say that rank 1 left in peace, or raised; nothing beside them may say
// that it died or hangs. Of a rank that nobody speaks of, nobody knows.
TEST(Diagnosis, F2_14WhatOthersSawOfARankWithoutARecordIsNotContradicted) {
  const auto reason = [](int suspect) {
    std::vector<FlightRecord> records;
    for (const int rank : {0, 2}) {
      records.push_back(record(rank, 4, {bucket(0, 0, State::kFailed)}));
      Failure& failure = records.back().failure.emplace(own_failure(suspect));
      failure.code = Code::kPeerLost;
      failure.definite = false;
      failure.suspect = suspect;
    }
    const Diagnosis diagnosis = of(std::move(records));
    EXPECT_EQ(diagnosis.suspects, (Ranks{1, 3}));
    return diagnosis.reason;
  };
  EXPECT_EQ(reason(1), "left no flight record; what ranks 0 2 saw is below");
  EXPECT_EQ(reason(0), "left no flight record: it died, hangs, or has not met the failure yet");
  EXPECT_EQ(reason(kNone), reason(0));
}

// The agreement of the construction came first on the group, and another reducer has collectives
// there, too.
TEST(Diagnosis, TextsCallCollectivesByTheirNumbersOnTheGroup) {
  const auto numbered = [](std::vector<RecordedCollective> collectives) {
    std::int64_t number = 4;
    for (RecordedCollective& each : collectives) each.number = number += 3;
    return collectives;
  };
  const State open = State::kInFlight;
  const std::string text = of({record(0, 2, numbered({bucket(0, 0), bucket(0, 1, open)})),
                               record(1, 2, numbered({bucket(0, 0)}))})
                               .to_string();
  for (const char* words :
       {"has not started the collective #10 that the others have started",
        "records show is in collective #10:\n", "rank 0: waits in #10 for rank 1\n",
        "\n  7   pass 0 bucket 0", "\n  10  pass 0 bucket 1"})
    EXPECT_NE(text.find(words), std::string::npos) << words << text;
  const std::string gap =
      of({record(0, 2, numbered({bucket(0, 0)})), record(1, 2, numbered({bucket(3, 0)}), 96100)})
          .to_string();
  EXPECT_NE(gap.find("ends before #8, and that of rank 1 begins with #7:"), std::string::npos)
      << gap;
}

// Rank 1, the root of a broadcast, has completed it without rank 0.
TEST(Diagnosis, F6ARankThatHasCompletedACollectiveIsNotSaidToWaitInIt) {
  EXPECT_EQ(of({record(0, 3, {bucket(0, 0)}),
                record(1, 3, {bucket(0, 0), usage_map(0, State::kCompleted)}),
                record(2, 3, {bucket(0, 0), usage_map(0, State::kInFlight)})})
                .reason,
            "has not started the collective #1 that the others have started");
}

// The record of rank 1 no longer has what the others may have done otherwise.
TEST(Diagnosis, F6WhatARecordHasForgottenIsNotSaidToBeTheSame) {
  const State open = State::kInFlight;
  const std::string text = of({record(0, 2, {bucket(0, 0), bucket(0, 1, open), bucket(1, 0, open)}),
                               record(1, 2, {bucket(1, 0, open)}, 2)})
                               .to_string();
  EXPECT_NE(text.find("the collectives that all records hold do not differ\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("rank 0: waits in #1; nobody can tell of rank 1\n"), std::string::npos)
      << text;
}

TEST(Diagnosis, T1ARankThatIsBehindIsTheOddOneAndSoIsOneThatIsAheadOfMost) {
  const State open = State::kInFlight;
  Diagnosis behind =
      of({record(0, 2, {bucket(0, 0), bucket(0, 1, open)}), record(1, 2, {bucket(0, 0)})});
  EXPECT_EQ(behind.suspects, Ranks{1});
  EXPECT_EQ(behind.waits[0].ranks, Ranks{1});
  Diagnosis ahead = of({record(0, 3, {bucket(0, 0), usage_map(0, open)}),
                        record(1, 3, {bucket(0, 0)}), record(2, 3, {bucket(0, 0)})});
  EXPECT_EQ(ahead.suspects, Ranks{0});
}

TEST(Diagnosis, F2ARankThatFailedByItselfIsTheOddOneThoughOthersAreSilent) {
  std::vector<FlightRecord> records = {record(0, 3, {bucket(0, 0, State::kFailed)}),
                                       record(1, 3, {bucket(0, 0, State::kFailed)})};
  for (FlightRecord& each : records) each.failure = own_failure(1);
  const Diagnosis diagnosis = of(std::move(records));
  EXPECT_EQ(diagnosis.suspects, Ranks{1});
  EXPECT_NE(diagnosis.to_string().find("the user's node threw"), std::string::npos);
}

// The user of rank 1 ended its group, and has not used the reducer since. A rank whose own failure
// made it abort is not the suspect.
TEST(Diagnosis, F5ARankWhoseUserAbortedIsTheOddOneThoughItHasMetNoFailure) {
  std::vector<FlightRecord> records = {record(0, 3, {bucket(0, 0, State::kFailed)}),
                                       record(1, 3, {bucket(0, 0)}),
                                       record(2, 3, {bucket(0, 0, State::kFailed)})};
  Failure aborted = own_failure(1);
  aborted.code = Code::kAborted;
  aborted.definite = false;
  records[0].failure = aborted;
  aborted.rank = 0;
  records[2].failure = aborted;
  const Diagnosis diagnosis = of(std::move(records));
  EXPECT_EQ(diagnosis.suspects, Ranks{1});
  EXPECT_EQ(diagnosis.reason, "aborted the group, as others say");
}

// The rank that found it is not the suspect (F3).
TEST(Diagnosis, F3WhoSentCorruptedDataIsTheOddOne) {
  std::vector<FlightRecord> records = {record(0, 3, {bucket(0, 0, State::kFailed)}),
                                       record(1, 3, {bucket(0, 0, State::kFailed)}),
                                       record(2, 3, {bucket(0, 0, State::kFailed)})};
  for (FlightRecord& each : records) {
    each.failure = own_failure(1);
    each.failure->code = Code::kCorrupted;
    each.failure->suspect = 2;
  }
  const Diagnosis diagnosis = of(std::move(records));
  EXPECT_EQ(diagnosis.suspects, Ranks{2});
  EXPECT_NE(diagnosis.to_string().find("what rank 1 received from it was corrupted"),
            std::string::npos)
      << diagnosis.to_string();
}

// The rank that is ahead no longer holds old collectives; only those that all ranks hold are
// compared.
TEST(Diagnosis, T1WhatOneRankHasForgottenIsNoDifference) {
  std::vector<RecordedCollective> last = {bucket(2, 0), bucket(2, 1)};
  const Diagnosis diagnosis =
      of({record(0, 2, {bucket(0, 0), bucket(1, 0), bucket(2, 0), bucket(2, 1)}),
          record(1, 2, std::move(last), 2)});
  EXPECT_TRUE(diagnosis.clean()) << diagnosis.to_string();
}

// A collective that the one has completed is not where they first differ.
TEST(Diagnosis, F6WhereRecordsDoNotOverlapNobodyCanTell) {
  const Diagnosis diagnosis =
      of({record(0, 2, {bucket(0, 0), bucket(0, 1)}),
          record(1, 2, {bucket(32'000, 0), bucket(32'000, 1, State::kInFlight)}, 96'100)});
  EXPECT_FALSE(diagnosis.difference.has_value());
  EXPECT_TRUE(diagnosis.suspects.empty());
  EXPECT_FALSE(diagnosis.clean());
  const std::string text = diagnosis.to_string();
  EXPECT_NE(
      text.find("2 ranks, no suspect\nthe flight record of rank 0 ends before #2, and that of "
                "rank 1 begins with #96100: nobody can tell where they first differ\n"),
      std::string::npos)
      << text;
  EXPECT_EQ(text.find("the first difference"), std::string::npos);
}

// Records that meet without a gap have something to compare: the next one of the rank behind.
TEST(Diagnosis, F6RecordsThatMeetAreCompared) {
  const Diagnosis diagnosis = of({record(0, 2, {bucket(0, 0), bucket(0, 1)}),
                                  record(1, 2, {bucket(1, 0, State::kInFlight)}, 2)});
  ASSERT_TRUE(diagnosis.difference.has_value());
  EXPECT_EQ(diagnosis.difference->sequence, 2);
}

TEST(Diagnosis, AccountsOfDifferentGroupsAreRefused) {
  EXPECT_EQ(diagnose({}).error().code(), Code::kInvalidArgument);
  EXPECT_FALSE(diagnose({record(0, 2, {}), record(0, 2, {})}).has_value());
  EXPECT_FALSE(diagnose({record(0, 2, {}), record(1, 3, {})}).has_value());
  FlightRecord other = record(1, 2, {});
  other.reducer_id = 7;
  EXPECT_FALSE(diagnose({record(0, 2, {}), other}).has_value());
}

FlightRecord full_flight_record() {
  FlightRecord full = record(1, 3, {bucket(4, 0), usage_map(4, State::kFailed)}, 40);
  full.reducer_id = 9;
  full.pass = 4;
  full.doing = FlightRecord::Doing::kBetween;
  full.next_bucket = 2;
  for (int i = 0; i < 40; ++i) full.missing.add("a name with % and \n, no. " + std::to_string(i));
  full.missing.first[3] = "-";
  full.missing.first[4] = "";
  full.failure = own_failure(2);
  full.failure->parameters = {"p0", "p1"};
  full.failure->later = {"rank 0 saw: something\nelse"};
  full.collectives[1].number = 43;
  return full;
}

TEST(FlightRecordText, ComesBackAsItWas) {
  const FlightRecord full = full_flight_record();
  const std::string text = to_text(full);
  const Result<FlightRecord> read = read_flight_record(text);
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(to_text(*read), text);
  EXPECT_EQ(read->missing, full.missing);
  EXPECT_EQ(read->failure->to_string(), full.failure->to_string());
  EXPECT_EQ(read->collectives[1].state, State::kFailed);
  EXPECT_TRUE(read->collectives[0].same_as(full.collectives[0]));
  EXPECT_EQ(read->collectives[0].shown_number(), 40);
  EXPECT_EQ(read->collectives[1].shown_number(), 43);
  EXPECT_EQ(read->next_sequence, 42);
  EXPECT_EQ(read->reducer_id, 9);
}

// If a text is cut anywhere, or any one byte is changed, it is refused or is another record; it
// never crashes the reader.
TEST(FlightRecordText, WhatIsCutOffIsRefusedAndWhatIsChangedIsRead) {
  const std::string text = to_text(full_flight_record());
  for (std::size_t length = 0; length + 1 < text.size(); ++length) {
    const Result<FlightRecord> read = read_flight_record(text.substr(0, length));
    // A prefix of the last line's number is a number, too, but not the right one.
    EXPECT_FALSE(read.has_value()) << "after " << length << " bytes";
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char byte : {'\0', ' ', '%', '\n', '9', '-', '\xff'}) {
      std::string changed = text;
      changed[at] = byte;
      const Result<FlightRecord> read = read_flight_record(changed);
      if (read) (void)of({*read}).to_string();
    }
  }
}

TEST(FlightRecordText, SaysWhichLineIsWrong) {
  const auto why = [](const std::string& text) {
    const Result<FlightRecord> read = read_flight_record(text);
    return read ? std::string() : read.error().failure().detail;
  };
  EXPECT_NE(why("").find("ends before its last line"), std::string::npos);
  EXPECT_NE(why("hello\n").find("no flight record of a rank"), std::string::npos);
  EXPECT_NE(why("lockstep-flight-record 3\n").find("version 3"), std::string::npos);
  EXPECT_NE(why("lockstep-flight-record 2\nnumber 5\n").find("line 2 is wrong"), std::string::npos);
  EXPECT_NE(why("lockstep-flight-record 1\nrank 0 2\nwhat is this\n").find("line 3 is wrong"),
            std::string::npos);
  EXPECT_NE(why("lockstep-flight-record 1\nrank 0 two\n").find("line 2 is wrong at the word 'two'"),
            std::string::npos);
  const std::string other_dtype =
      "lockstep-flight-record 1\nrank 0 2\npass 0 no%20pass%20is%20open\n"
      "collective 0 0 bucket all_reduce 0 25 int64 completed 1 2 77 1 p0\nend 1\n";
  EXPECT_EQ(why(other_dtype), "");  // of a writer that has more dtypes than we
  EXPECT_NE(why("lockstep-flight-record 1\nrank 2 2\nend 0\n").find("do not fit"),
            std::string::npos);
  EXPECT_NE(why("lockstep-account 1\nrank 0 999999999\nend 0\n").find("do not fit"),
            std::string::npos);
  std::string gap = to_text(full_flight_record());
  gap.replace(gap.find("collective 41"), 13, "collective 43");
  EXPECT_NE(why(gap).find("is wrong"), std::string::npos);
  std::string largest = to_text(full_flight_record());
  largest.replace(largest.find("collective 40"), 13, "collective 9223372036854775807");
  EXPECT_NE(why(largest).find("'collective 9223372036854775807"), std::string::npos);
  for (const char* number : {"number 9223372036854775807", "number -2"}) {
    std::string wrong = to_text(full_flight_record());
    wrong.replace(wrong.find("number 43"), 9, number);
    EXPECT_NE(why(wrong), "");
  }
}

}  // namespace
}  // namespace lockstep
