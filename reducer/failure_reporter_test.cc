// What a reporter keeps of failures (P12, T1), and what failures say about where a rank is (F2).
#include "reducer/failure_reporter.h"

#include <gtest/gtest.h>

#include "reducer/training_position.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

Failure failure_of(Code code, const char* detail) {
  Failure failure;
  failure.code = code;
  failure.detail = detail;
  return failure;
}

TEST(FailureReporter, TheProgressAtTheFirstFailureStays) {
  FailureReporter failures;
  ProgressSnapshot progress;
  progress.pass = 3;
  failures.note(progress, failure_of(Code::kIncomplete, "first"));
  progress.pass = 4;
  failures.note(progress, failure_of(Code::kTimeout, "second"));
  ASSERT_TRUE(failures.failed_at());
  EXPECT_EQ(failures.failed_at()->pass, 3);
  EXPECT_EQ(failures.failed_at()->failure->detail, "first");
  failures.forget_progress();
  EXPECT_FALSE(failures.failed_at());
}

TEST(FailureReporter, APoisonedReducerRefusesWithTheFirstCause) {
  FailureReporter failures;
  EXPECT_FALSE(failures.is_poisoned());
  failures.set_poison(Status(failure_of(Code::kTimeout, "nothing came")));
  EXPECT_EQ(failures.copy_of_poison().code(), Code::kTimeout);
  const Status refusal = failures.refusal();
  EXPECT_EQ(refusal.code(), Code::kPoisoned);
  EXPECT_NE(refusal.failure().detail.find("nothing came"), std::string::npos);
  failures.start_over();
  EXPECT_FALSE(failures.is_poisoned());
}

TEST(FailureReporter, MemoryForOneFailureIsReservedAgainAfterAReset) {
  FailureReporter failures;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(failures.reserved(Code::kAborted, "one").failure().detail, "one");
    EXPECT_EQ(failures.reserved(Code::kAborted, "two").code(), Code::kAborted);
    failures.start_over();
  }
}

class TrainingPositionTest : public ::testing::Test {
 protected:
  TrainingPositionTest() {
    parameters_.push_back({"p0", DType::kFloat32, 0, 1, true, false});
    layout_.buckets.resize(2);
    layout_.buckets[1].members.resize(1);
  }
  TrainingPosition at(std::int64_t pass) const { return {1, 4, 17, pass, 6, layout_, parameters_}; }

  Layout layout_;
  std::vector<ParameterInfo> parameters_;
};

TEST_F(TrainingPositionTest, AFailureOfTheGroupGetsPassBucketAndParameters) {
  Failure failure = failure_of(Code::kPeerLost, "closed");
  failure.suspect = 2;
  annotate(at(5), failure, 1);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_EQ(failure.pass, 5);
  EXPECT_EQ(failure.bucket, 1);
  EXPECT_EQ(failure.parameters, (std::vector<std::string>{"p0"}));
  Failure early = failure_of(Code::kPeerLost, "closed");
  annotate(at(kNone), early, kNone);
  EXPECT_EQ(early.pass, 6) << "no backward of the pass has begun: it is the next one";
}

// What waits for a bucket may learn that the sum of the usage map failed before (F2).
TEST_F(TrainingPositionTest, ACollectiveOfTheGroupWithoutABucketIsNoneOfTheBucketThatWaits) {
  Failure of_map = failure_of(Code::kPeerLost, "closed");
  of_map.collective = "all_reduce";
  of_map.sequence = 7;
  of_map.reducer_id = at(5).reducer_id;
  annotate(at(5), of_map, 1);
  EXPECT_EQ(of_map.bucket, kNone);
  EXPECT_TRUE(of_map.parameters.empty());
  Failure of_agreement = failure_of(Code::kTimeout, "rank 2 is late");
  of_agreement.collective = "all_gather";
  of_agreement.sequence = 1;  // it has no reducer yet
  annotate(at(5), of_agreement, 1);
  EXPECT_EQ(of_agreement.bucket, kNone);
  Failure refused = failure_of(Code::kInvalidArgument, "no data");
  refused.collective = "all_reduce";  // it has no number, as nothing was started
  annotate(at(5), refused, 1);
  EXPECT_EQ(refused.bucket, 1);
}

TEST_F(TrainingPositionTest, TheBucketOfAnotherReducerIsNotNamed) {
  Failure failure = failure_of(Code::kPeerLost, "closed");
  failure.reducer_id = 16;
  failure.pass = 90;
  failure.bucket = 1;
  annotate(at(5), failure, kNone);
  EXPECT_EQ(failure.pass, 5);
  EXPECT_EQ(failure.bucket, kNone);
  EXPECT_TRUE(failure.parameters.empty());
}

TEST_F(TrainingPositionTest, AFailureThatNamesNobodyAroseHereUnlessItIsTheGroups) {
  Failure refused = out_of_memory().failure();
  complete(at(kNone), refused);
  EXPECT_EQ(refused.rank, 1);
  EXPECT_EQ(refused.reported_by, 1);
  EXPECT_EQ(refused.pass, 6);
  EXPECT_TRUE(refused.definite);
  Failure late = failure_of(Code::kTimeout, "the GPU did not answer");
  complete(at(5), late);
  EXPECT_EQ(late.rank, 1);
  EXPECT_EQ(late.pass, 5);
  EXPECT_FALSE(late.definite) << "it may wait for a peer";
  Failure refusal = failure_of(Code::kPoisoned, "another reducer has failed before");
  complete(at(5), refusal);
  EXPECT_EQ(refusal.rank, 1);
  EXPECT_FALSE(refusal.definite) << "its cause is elsewhere";
  Failure lost = failure_of(Code::kPeerLost, "closed");
  lost.collective = "all_reduce";
  complete(at(5), lost);
  EXPECT_EQ(lost.rank, kNone);
  EXPECT_FALSE(lost.definite);
  Failure of_peer = failure_of(Code::kUserFailure, "its hook failed");
  of_peer.rank = 3;
  of_peer.pass = 2;
  complete(at(5), of_peer);
  EXPECT_EQ(of_peer.rank, 3);
  EXPECT_EQ(of_peer.pass, 2);
  EXPECT_EQ(of_peer.reported_by, 1);
}

TEST_F(TrainingPositionTest, RanksThatTheGroupDoesNotHaveAreReplaced) {
  Failure failure = failure_of(Code::kUserFailure, "");
  failure.rank = 4;
  failure.suspect = -7;
  failure.pass = -3;
  keep_to_group(1, 4, failure);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.suspect, kNone);
  EXPECT_EQ(failure.pass, kNone);
}

}  // namespace
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
