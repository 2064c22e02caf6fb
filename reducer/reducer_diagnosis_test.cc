// What ranks report about themselves after a failure, and what the diagnosis concludes: clauses T1,
// F2 and F6. diagnosis/diagnosis_test.cc tests flight records and their joining alone.
#include <gtest/gtest.h>

#include "reducer/failure_board.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using Ranks = std::vector<int>;
using Doing = FlightRecord::Doing;
using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr int kDiagnosedRanks = 3;

// Each rank makes a good step and then `second`, with p and q in a bucket each, q's the first.
// Returns the flight records that the ranks then have.
std::vector<FlightRecord> flight_records_after(const std::function<void(TestRank&, int)>& second,
                                               bool dynamic = false,
                                               platform::Duration timeout = seconds(20)) {
  const auto memberships = local_memberships(kDiagnosedRanks, timeout);
  std::vector<FlightRecord> records(kDiagnosedRanks);
  on_ranks(kDiagnosedRanks, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    TestRank rank;
    rank.add("p");
    rank.add("q");
    ASSERT_TRUE(rank.create(memberships[i], quick_options(dynamic)).ok());
    ASSERT_TRUE(rank.backward(rank.forward_of(rank.parameters), 1).ok());
    second(rank, r);
    const FlightRecord told = rank.parallel->flight_record();
    // As if it came from a file.
    const Result<FlightRecord> read = read_flight_record(to_text(told));
    ASSERT_TRUE(read.has_value()) << read.error().to_string();
    records[i] = *read;
  });
  return records;
}

TEST(ReducerDiagnosis, T1ACleanRunGivesNone) {
  for (const bool dynamic : {false, true}) {
    const auto records = flight_records_after(
        [](TestRank& rank, int) {
          ASSERT_TRUE(rank.backward(rank.forward_of(rank.parameters), 2).ok());
        },
        dynamic);
    const Result<Diagnosis> diagnosis = diagnose(records);
    ASSERT_TRUE(diagnosis.has_value());
    EXPECT_TRUE(diagnosis->clean()) << diagnosis->to_string();
    EXPECT_EQ(records[0].collectives.size(), dynamic ? 6u : 4u);
    EXPECT_EQ(records[0].collectives[0].parameters.to_string(), "q");
  }
}

TEST(ReducerDiagnosis, F2ARankThatThrowsIsTheOddOneAndItsNextBucketLacksWhatItDidNotReach) {
  const auto records = flight_records_after([](TestRank& rank, int r) {
    const Edge p{rank.parameters[0], 0};
    const Edge q{rank.parameters[1], 0};
    const Ref<Node> thrower = rank.thrower({p});
    const auto outputs =
        r == 1 ? rank.forward({{rank.fan({q, {thrower, 0}}), 0}}) : rank.forward({p, q});
    EXPECT_FALSE(rank.backward(outputs, 1).ok());
  });
  const Result<Diagnosis> diagnosis = diagnose(records);
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_EQ(diagnosis->suspects, Ranks{1}) << diagnosis->to_string();
  EXPECT_EQ(records[1].next_bucket, 1);
  EXPECT_EQ(records[1].missing.to_string(), "p");
  EXPECT_EQ(records[1].pass, 1);
  // How far the other ranks got depends on timing.
  for (const std::size_t r : {0u, 2u}) EXPECT_EQ(records[r].failure->code, Code::kUserFailure);
  EXPECT_NE(diagnosis->to_string().find("the user's node threw"), std::string::npos);
}

TEST(ReducerDiagnosis, P5ARankWithoutAGradientOfAParameterIsTheOddOne) {
  const auto records = flight_records_after([](TestRank& rank, int r) {
    const Ref<Parameter>& q = rank.parameters[1];
    const auto outputs = r == 2 ? rank.forward_of({q}) : rank.forward_of(rank.parameters);
    EXPECT_FALSE(rank.backward(outputs, 1).ok());
  });
  const Result<Diagnosis> diagnosis = diagnose(records);
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_EQ(diagnosis->suspects, Ranks{2}) << diagnosis->to_string();
  EXPECT_EQ(records[2].doing, Doing::kBetween);
  EXPECT_EQ(records[2].missing.to_string(), "p");
  EXPECT_EQ(records[2].failure->code, Code::kIncomplete);
}

TEST(ReducerDiagnosis, P8ARankThatHasNotCalledBackwardIsTheOddOne) {
  const auto records = flight_records_after(
      [](TestRank& rank, int r) {
        const auto outputs = rank.forward_of(rank.parameters);
        if (r == 0) return;
        EXPECT_FALSE(rank.backward(outputs, 1).ok());
      },
      false, milliseconds(50));
  const Result<Diagnosis> diagnosis = diagnose(records);
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_EQ(diagnosis->suspects, Ranks{0}) << diagnosis->to_string();
  EXPECT_EQ(records[0].doing, Doing::kArmed);
  EXPECT_EQ(records[0].missing.to_string(), "q");
  ASSERT_EQ(diagnosis->waits.size(), 2u);
  for (const Diagnosis::Wait& wait : diagnosis->waits) {
    EXPECT_EQ(wait.sequence, 2);
    EXPECT_EQ(wait.ranks, Ranks{0});
  }
}

TEST(ReducerDiagnosis, T1SurvivorsJoinWhatTheStoreHasAndADeadRankIsSilent) {
  const auto memberships = local_memberships(kDiagnosedRanks);
  on_ranks(kDiagnosedRanks, [&](int r) {
    TestRank rank;
    const auto p = rank.add("p");
    ASSERT_TRUE(rank.create(memberships[static_cast<std::size_t>(r)], quick_options(false)).ok());
    ASSERT_TRUE(rank.backward(rank.forward_of({p}), 1).ok());
    if (r == 2) return memberships[2].group->abort(Status(Code::kAborted, "as if it had died"));
    ASSERT_FALSE(rank.backward(rank.forward_of({p}), 1).ok());
    const Result<Diagnosis> diagnosis = rank.parallel->diagnose(seconds(1));
    ASSERT_TRUE(diagnosis.has_value());
    EXPECT_EQ(diagnosis->records.size(), 2u) << diagnosis->to_string();
    EXPECT_EQ(diagnosis->silent, Ranks{2});
    EXPECT_EQ(diagnosis->suspects, Ranks{2});
  });
}

TEST(ReducerDiagnosis, T1SurvivorsJoinWhatTheStoreHasAndAllSayTheSame) {
  const auto memberships = local_memberships(kDiagnosedRanks);
  std::vector<Ranks> odd(kDiagnosedRanks);
  on_ranks(kDiagnosedRanks, [&](int r) {
    TestRank rank;
    const auto p = rank.add("p");
    const auto q = rank.add("q");
    const auto i = static_cast<std::size_t>(r);
    ASSERT_TRUE(rank.create(memberships[i], quick_options(false)).ok());
    const auto outputs = r == 1 ? rank.forward_of({q}) : rank.forward_of({p, q});
    ASSERT_FALSE(rank.backward(outputs, 1).ok());
    const Result<Diagnosis> diagnosis = rank.parallel->diagnose(seconds(20));
    ASSERT_TRUE(diagnosis.has_value());
    EXPECT_TRUE(diagnosis->silent.empty()) << diagnosis->to_string();
    odd[i] = diagnosis->suspects;
  });
  for (const Ranks& each : odd) EXPECT_EQ(each, Ranks{1});
}

// A flight record in the store stays as it is: one from before the failure that matters would
// describe this rank as far behind.
TEST(ReducerDiagnosis, T1WhoAskedBeforeTheReducerWasPoisonedDoesNotSeemToBeBehind) {
  const auto memberships = local_memberships(kDiagnosedRanks);
  std::vector<Ranks> odd(kDiagnosedRanks);
  on_ranks(kDiagnosedRanks, [&](int r) {
    TestRank rank;
    const auto p = rank.add("p");
    const auto q = rank.add("q");
    const auto i = static_cast<std::size_t>(r);
    ASSERT_TRUE(rank.create(memberships[i], quick_options(false)).ok());
    const auto throwing = rank.forward({{rank.thrower({{p, 0}, {q, 0}}), 0}});
    ASSERT_FALSE(rank.backward(throwing, 1).ok());
    ASSERT_TRUE(rank.parallel->poisoned().ok());  // Nothing had been launched (P12).
    if (r == 1) {
      const Result<Diagnosis> early = rank.parallel->diagnose(milliseconds(1));
      ASSERT_TRUE(early.has_value());
      EXPECT_EQ(early->records.size(), 1u);
      EXPECT_EQ(early->silent, (Ranks{0, 2}));
    }
    for (int step = 0; step < 3; ++step)
      ASSERT_TRUE(rank.backward(rank.forward_of({p, q}), 1).ok());
    const auto outputs = r == 2 ? rank.forward_of({q}) : rank.forward_of({p, q});
    ASSERT_FALSE(rank.backward(outputs, 1).ok());
    const Result<Diagnosis> diagnosis = rank.parallel->diagnose(seconds(20));
    ASSERT_TRUE(diagnosis.has_value());
    EXPECT_TRUE(diagnosis->silent.empty()) << diagnosis->to_string();
    odd[i] = diagnosis->suspects;
  });
  for (const Ranks& each : odd) EXPECT_EQ(each, Ranks{2});
}

using ReducerAccount = ReducerTest;

TEST_F(ReducerAccount, T1AFailureIsToldUntilAPassBeginsOrAReset) {
  create(false);
  EXPECT_EQ(parallel().flight_record().doing, Doing::kIdle);
  ASSERT_EQ(rank_.backward(rank_.forward({{rank_.thrower({{p_, 0}, {q_, 0}}), 0}}), 1).code(),
            Code::kUserFailure);
  EXPECT_TRUE(parallel().poisoned().ok());  // Nothing had been launched.
  ASSERT_TRUE(parallel().flight_record().failure.has_value());
  EXPECT_EQ(parallel().flight_record().failure->code, Code::kUserFailure);
  EXPECT_EQ(parallel().flight_record().missing.to_string(), "q");
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 1).ok());
  EXPECT_FALSE(parallel().flight_record().failure.has_value());
  parallel().abort(Status(Code::kUserFailure, "given up"));
  EXPECT_TRUE(parallel().flight_record().failure.has_value());
  ASSERT_TRUE(parallel().reset(membership()).ok());
  EXPECT_FALSE(parallel().flight_record().failure.has_value());
  EXPECT_EQ(parallel().flight_record().next_sequence, 0);
}

TEST_F(ReducerAccount, T1BetweenTwoBackwardsItSaysWhatTheNextBucketLacks) {
  create(false);
  const auto outputs = rank_.forward_of({p_, q_});
  EXPECT_EQ(parallel().flight_record().doing, Doing::kArmed);
  ASSERT_TRUE(rank_.backward({outputs[0]}, 1).ok());
  const FlightRecord record = parallel().flight_record();
  EXPECT_EQ(record.doing, Doing::kBetween);
  EXPECT_EQ(record.next_bucket, 0);
  EXPECT_EQ(record.missing.to_string(), "q");
}

// Sequence numbers count in one group, and a reducer may have two groups (P14).
TEST(FailureBoardCause, F2OfSilentPeersTheOneOfTheEarlierPassHeldTheOthersUp) {
  const auto store = std::make_shared<HashStore>();
  const auto report = [](int rank, std::int64_t pass, std::int64_t sequence) {
    Failure failure;
    failure.code = Code::kPeerLost;
    failure.reported_by = rank;
    failure.pass = pass;
    failure.sequence = sequence;
    failure.detail = "of pass " + std::to_string(pass);
    return failure;
  };
  FailureBoard(store, 1, 2).publish(report(1, 1, 6));
  const Failure settled = FailureBoard(store, 0, 2).settle(report(0, 2, 4), seconds(1));
  EXPECT_EQ(settled.detail, "of pass 1");
  EXPECT_EQ(settled.reported_by, 0);
}

// Each rank of a ring waits for the next one; the one that stalled waits for nobody.
TEST(FailureBoardCause, F2TheChainOfSuspicionsLeadsToTheRankThatSuspectsNobody) {
  const auto report = [](int rank, int suspect) {
    Failure failure;
    failure.code = Code::kTimeout;
    failure.reported_by = rank;
    failure.rank = suspect == kNone ? rank : kNone;
    failure.suspect = suspect;
    failure.pass = failure.sequence = 0;
    failure.detail =
        suspect == kNone ? "could not begin" : "nothing came from rank " + std::to_string(suspect);
    return failure;
  };
  const auto settled_by = [&](int self, const std::vector<int>& suspects,
                              std::int64_t others_sequence = 0) {
    const auto told_by = [&](int r) {
      Failure failure = report(r, suspects[static_cast<std::size_t>(r)]);
      if (r != 0) failure.sequence = others_sequence;
      return failure;
    };
    const auto store = std::make_shared<HashStore>();
    const int ranks = static_cast<int>(suspects.size());
    for (int r = 0; r < ranks; ++r)
      if (r != self) FailureBoard(store, r, ranks).publish(told_by(r));
    return FailureBoard(store, self, ranks).settle(told_by(self), seconds(1));
  };
  for (int self = 0; self < 4; ++self) {
    const Failure settled = settled_by(self, {1, 2, kNone, 0});
    EXPECT_EQ(settled.rank, 2) << "rank " << self << ": " << settled.to_string();
    EXPECT_EQ(settled.detail, "could not begin") << "rank " << self;
    EXPECT_EQ(settled.reported_by, self);
    // Rank 0 is ahead in the second group, whose numbers are others (P14).
    EXPECT_EQ(settled_by(self, {1, 2, kNone, 0}, 7).rank, 2);
    // A circle has no end: all take what the lowest rank told.
    EXPECT_EQ(settled_by(self, {1, 2, 3, 0}).suspect, 1);
  }
}

// Rank 1 has ended the collective, and its program, and has nothing to tell.
TEST(FailureBoardCause, F2_8WhoIsSilentAndSuspectedByNobodyIsNotBlamedForAStall) {
  Failure stalled;
  stalled.code = Code::kTimeout;
  stalled.rank = stalled.reported_by = 0;
  stalled.pass = stalled.sequence = 0;
  stalled.detail = "could not begin on rank 0";
  Failure waiting = stalled;
  waiting.code = Code::kPeerLost;
  waiting.reported_by = 2;
  waiting.rank = kNone;
  waiting.suspect = 0;
  waiting.detail = "rank 0 closed its connections";
  for (const int self : {0, 2}) {
    const auto store = std::make_shared<HashStore>();
    FailureBoard(store, 2 - self, 3).publish(self == 0 ? waiting : stalled);
    const Failure settled =
        FailureBoard(store, self, 3).settle(self == 0 ? stalled : waiting, milliseconds(5));
    EXPECT_EQ(settled.rank, 0) << settled.to_string();
    EXPECT_EQ(settled.detail, stalled.detail);
  }
}

// F2: the text names the rank that the fields name.
TEST(FailureBoardCause, F2_7ASilentRankIsNamedInTheTextToo) {
  Failure own;
  own.code = Code::kTimeout;
  own.reported_by = 0;
  own.suspect = 1;
  own.detail = "nothing came from rank 1";
  Failure other = own;
  other.reported_by = 1;
  other.suspect = 2;
  const auto store = std::make_shared<HashStore>();
  FailureBoard(store, 1, 3).publish(other);
  const Failure settled = FailureBoard(store, 0, 3).settle(own, milliseconds(5));
  EXPECT_EQ(settled.rank, 2);
  EXPECT_EQ(settled.suspect, 2);
  EXPECT_TRUE(settled.detail.starts_with("rank 2 ")) << settled.to_string();
  ASSERT_FALSE(settled.later.empty());
  EXPECT_NE(settled.later.back().find("nothing came from rank 1"), std::string::npos);
  own.suspect = 2;  // A failure that names the rank already keeps its text.
  own.detail = "nothing came from rank 2";
  EXPECT_EQ(FailureBoard(store, 0, 3).settle(own, milliseconds(5)).detail, own.detail);
}

// Rank 2 has exited, and rank 0 waits for it; both are silent, and each is suspected by one rank.
TEST(FailureBoardCause, F2OfTwoSilentRanksTheOneWhoseConnectionsClosedIsNamed) {
  Failure saw_it_close;
  saw_it_close.code = Code::kPeerLost;
  saw_it_close.reported_by = 3;
  saw_it_close.suspect = 2;
  saw_it_close.detail = "rank 2 closed its connections";
  Failure waited = saw_it_close;
  waited.code = Code::kTimeout;
  waited.reported_by = 1;
  waited.suspect = 0;
  waited.detail = "nothing came from rank 0 in time";
  for (const int self : {1, 3}) {
    const auto store = std::make_shared<HashStore>();
    FailureBoard(store, 4 - self, 4).publish(self == 1 ? saw_it_close : waited);
    const Failure settled =
        FailureBoard(store, self, 4).settle(self == 1 ? waited : saw_it_close, milliseconds(5));
    EXPECT_EQ(settled.rank, 2) << settled.to_string();
  }
}

// Over NCCL. Rank 1 saw rank 2 close its connection to a communicator, which does not say whose it
// was, and ended the group in which rank 0 waited.
TEST(FailureBoardCause, F2WhoeverIsLostWithoutANameIsTheOneThatIsSilent) {
  Failure aborted;
  aborted.code = Code::kAborted;
  aborted.rank = aborted.suspect = 1;
  aborted.detail = "rank 1 aborted the group";
  Failure lost;
  lost.code = Code::kPeerLost;
  lost.detail = "ncclRemoteError";
  const auto store = std::make_shared<HashStore>();
  FailureBoard(store, 1, 3).publish(lost);
  const Failure settled = FailureBoard(store, 0, 3).settle(aborted, milliseconds(5));
  EXPECT_EQ(settled.rank, 2) << settled.to_string();
  EXPECT_EQ(settled.suspect, 2);
}

// A store in which rank 0 reports as soon as it has been found silent, and rank 1 only after that.
class LateReports final : public HashStore {
 public:
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override {
    Result<std::string> found = HashStore::get(key, deadline);
    if (found || is_told_) return found;
    is_told_ = true;
    Failure failure;
    failure.code = Code::kTimeout;
    failure.rank = 0;
    failure.detail = "could not begin on rank 0";
    FailureBoard(std::shared_ptr<Store>(std::shared_ptr<Store>(), this), 0, 4).publish(failure);
    failure.code = Code::kPeerLost;
    failure.rank = kNone;
    failure.suspect = 0;
    failure.detail = "rank 0 closed its connections";
    FailureBoard(std::shared_ptr<Store>(std::shared_ptr<Store>(), this), 1, 4).publish(failure);
    return found;
  }

 private:
  bool is_told_ = false;
};

TEST(FailureBoardCause, F2ARankThatReportedBeforeItsPeersDidIsNotTakenForSilent) {
  const auto store = std::make_shared<LateReports>();
  Failure own;
  own.code = Code::kTimeout;
  own.reported_by = 2;
  own.suspect = 3;
  own.detail = "nothing came from rank 3 in time";
  const Failure settled = FailureBoard(store, 2, 4).settle(own, milliseconds(5));
  EXPECT_EQ(settled.rank, 3) << settled.to_string();  // which alone is silent
}

TEST(FailureBoardAccounts, T1WhatIsNoAccountCountsAsNone) {
  auto store = std::make_shared<HashStore>();
  ASSERT_TRUE(store->set("flight_record/0/1", "from another version").has_value());
  FlightRecord own;
  own.size = 3;
  FlightRecord wrong = own;  // It lies under the key of another rank.
  ASSERT_TRUE(store->set("flight_record/0/2", to_text(wrong)).has_value());
  const auto records =
      FailureBoard(store, 0, 3).records(own, platform::Deadline::in(milliseconds(10)));
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].rank, 0);
}

}  // namespace
}  // namespace lockstep::testing
