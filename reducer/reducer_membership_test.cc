// Which forwards and backwards belong to a pass: clause P1.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using ReducerMembership = ReducerTest;
using Names = std::vector<std::string>;

// Which outputs are gone before the search depends on timing. Sanitizers check that the search
// reads no freed memory.
TEST_F(ReducerMembership, P1OutputsMayBeDroppedByAnotherThreadWhileABackwardBegins) {
  constexpr int kOutputs = 200;
  constexpr int kNodes = 10;
  for (int round = 0; round < 60; ++round) {
    create(true);
    rank_.undefine_grads();
    const auto used = rank_.forward_of({p_});
    std::vector<std::vector<Edge>> dropped;
    for (int i = 0; i < kOutputs; ++i) {
      std::vector<Edge> chain(1, Edge{q_, 0});
      for (int k = 0; k < kNodes; ++k) chain = {{rank_.fan(std::move(chain)), 0}};
      dropped.push_back(rank_.forward(chain));
    }
    std::atomic<bool> begins{false};
    std::thread other([&] {
      while (!begins) std::this_thread::yield();
      while (!dropped.empty()) dropped.pop_back();
    });
    begins = true;
    const Status status = rank_.backward(used, 4);
    other.join();
    EXPECT_TRUE(status.ok() || status.code() == Code::kIncomplete) << status.to_string();
  }
}

TEST_F(ReducerMembership, P1_1TwoForwardsBeforeOneBackwardAreOnePass) {
  for (const bool dynamic : {false, true}) {
    create(dynamic);
    for (int pass = 0; pass < 2; ++pass) {
      rank_.undefine_grads();
      const auto first_outputs = rank_.forward_of({p_});
      const auto second_outputs = rank_.forward_of({q_});
      ASSERT_TRUE(rank_.backward({first_outputs[0], second_outputs[0]}, 6).ok());
      EXPECT_EQ(parallel().reducer().launched_in_pass(), dynamic ? 3 : 2);
      EXPECT_EQ(group_->started.back().collective.pass, pass);
      EXPECT_EQ(first(p_), 6);
      EXPECT_EQ(first(q_), 6);
    }
  }
}

TEST_F(ReducerMembership, P1_3AForwardWhoseOutputsAreGoneLeavesNothingArmed) {
  for (const bool dynamic : {false, true}) {
    create(dynamic);
    (void)rank_.forward_of({p_, q_});
    rank_.undefine_grads();
    ASSERT_TRUE(rank_.backward({{p_, 0}, {q_, 0}}, 3).ok());
    EXPECT_EQ(group_->sums(), 0);
    EXPECT_EQ(first(p_), 3);
    ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 3).ok());
    EXPECT_EQ(group_->started.back().collective.pass, 0);  // A number belongs to a backward.
    EXPECT_EQ(first(p_), 6);
  }
}

TEST_F(ReducerMembership, P1_4APassIsNumberedByItsFirstBackwardAndClosesWithItsReduction) {
  create(false);
  const auto first_outputs = rank_.forward_of({p_, q_});
  ASSERT_TRUE(rank_.backward({{p_, 0}}, 1).ok());  // A local one has no number.
  ASSERT_TRUE(rank_.backward(first_outputs, 1).ok());
  EXPECT_EQ(parallel().reducer().last_pass().pass, 0);
  const auto outputs = rank_.forward_of({p_, q_});
  ASSERT_TRUE(rank_.backward({outputs[1]}, 1).ok());
  EXPECT_EQ(group_->started.back().collective.pass, 1);
  EXPECT_EQ(parallel().reducer().last_pass().pass, 0);  // The next one is still open.
  ASSERT_TRUE(rank_.backward({outputs[0]}, 1).ok());
  EXPECT_EQ(parallel().reducer().last_pass().pass, 1);
}

TEST_F(ReducerMembership, P1_5ABackwardThatReachesNoSyncedOutputStaysLocalWhateverIsArmed) {
  for (const bool dynamic : {false, true}) {
    create(dynamic);
    rank_.undefine_grads();
    const auto armed = rank_.forward_of({p_, q_});
    ASSERT_TRUE(rank_.backward({{p_, 0}, {q_, 0}}, 3).ok());
    EXPECT_EQ(group_->sums(), 0);
    ASSERT_TRUE(rank_.backward(armed, 5).ok());
    EXPECT_EQ(first(p_), 8);
    EXPECT_EQ(buckets_of(*group_), (std::vector<int>{0, 1}));
  }
}

TEST_F(ReducerMembership, P1_8ALocalBackwardInTheMiddleOfAPassRaisesWhereItReachesWhatIsTaken) {
  for (const bool views : {false, true}) {
    ReducerOptions options = quick_options(false);
    options.gradient_as_bucket_view = views;
    ASSERT_TRUE(rank_.create(membership(), options).ok());
    for (int pass = 0; pass < 2; ++pass) {
      rank_.undefine_grads();
      const auto outputs = rank_.forward_of({p_, q_});
      ASSERT_TRUE(rank_.backward({outputs[1]}, 6).ok());
      const Status status = rank_.backward({{q_, 0}}, 100);
      ASSERT_EQ(status.code(), Code::kReadyTwice) << status.to_string();
      EXPECT_EQ(status.failure().parameters, Names{"q"});
      EXPECT_EQ(status.failure().pass, pass);
      EXPECT_EQ(status.failure().bucket, 0);
      EXPECT_TRUE(parallel().poisoned().ok());
      ASSERT_TRUE(rank_.backward({{p_, 0}}, 10).ok());  // This gradient has not been copied yet.
      ASSERT_TRUE(rank_.backward({outputs[0]}, 6).ok());
      EXPECT_EQ(first(q_), 6);
      EXPECT_EQ(first(p_), 16);
    }
  }
}

TEST_F(ReducerMembership, P1TheForwardDecidesAndNotTheBackward) {
  create(false);
  const auto synced = rank_.forward_of({p_, q_});
  std::vector<Edge> local;
  {
    const DataParallel::NoSync no_sync(parallel());
    local = rank_.forward_of({p_, q_});
    ASSERT_TRUE(rank_.backward(synced, 1).ok());
    EXPECT_EQ(group_->sums(), 2);
  }
  ASSERT_TRUE(rank_.backward(local, 1).ok());
  EXPECT_EQ(group_->sums(), 2);
}

TEST_F(ReducerMembership, P1_6ABackwardThatReachesBothKindsIsSynced) {
  create(false);
  std::vector<Edge> roots;
  {
    const DataParallel::NoSync no_sync(parallel());
    roots = rank_.forward_of({q_});
  }
  roots.push_back(rank_.forward_of({p_})[0]);
  ASSERT_TRUE(rank_.backward(roots, 4).ok());
  EXPECT_EQ(group_->sums(), 2);
}

TEST_F(ReducerMembership, P1_2AForwardWithoutGradientsArmsNothing) {
  create(false);
  const auto module = [&](std::vector<Edge>& edges) {
    edges = {{p_, 0}, {q_, 0}};
    return Status();
  };
  ASSERT_TRUE(parallel().forward_without_gradients(module).ok());
  ASSERT_TRUE(rank_.backward({{p_, 0}, {q_, 0}}, 3).ok());
  EXPECT_EQ(group_->sums(), 0);
}

}  // namespace
}  // namespace lockstep::testing
