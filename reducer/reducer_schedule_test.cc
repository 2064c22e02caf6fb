// When, on which group and in which layout buckets are reduced, as users choose it: clauses P14
// (after backward), B3 and P17 (pinned layouts).
#include <gtest/gtest.h>

#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

class ReducerAfterBackward : public ReducerTest {
 protected:
  void create_after(bool dynamic, std::uint64_t limit = 256u << 20) {
    ReducerOptions options = quick_options(dynamic);
    options.schedule = Schedule::kAfterBackward;
    options.coalesced_bytes = limit;
    options.rebuild_buckets = true;  // No rebuild happens.
    ASSERT_TRUE(rank_.create(membership(), options).ok());
  }
};

TEST_F(ReducerAfterBackward, P14HooksStartNothingAndTheEndReducesAllInCoalescedBuckets) {
  create_after(false);
  for (int pass = 0; pass < 3; ++pass) {
    rank_.undefine_grads();
    const int before = group_->sums();
    int in_between = -1;
    const auto last = rank_.node({{p_, 0}}, [&](auto in, auto out, const auto&) {
      in_between = group_->sums();  // The hook of q has run.
      out[0] = in[0];
      return Status();
    });
    const auto fan = rank_.fan({{last, 0}, {q_, 0}});
    ASSERT_TRUE(rank_.backward(rank_.forward({{fan, 0}}), 6).ok());
    EXPECT_EQ(in_between, before);
    EXPECT_EQ(group_->sums(), before + 1);
    EXPECT_EQ(first(p_), 6);
    EXPECT_EQ(first(q_), 6);
  }
  for (const Started& s : group_->started) EXPECT_NE(s.collective.op, Op::kBroadcast);
}

TEST_F(ReducerAfterBackward, P14SeveralBucketsGoInOrderAndTheUsageMapLast) {
  create_after(true, 1);
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 6).ok());
  ASSERT_EQ(group_->sums(), 3);
  const auto& started = group_->started;
  EXPECT_EQ(started[started.size() - 3].collective.bucket, 0);
  EXPECT_EQ(started[started.size() - 2].collective.bucket, 1);
  EXPECT_EQ(started.back().collective.dtype, DType::kInt32);
  EXPECT_FALSE(q_->grad().defined());
}

TEST_F(ReducerAfterBackward, P14SeveralBackwardsOfAPassAreReducedOnceAfterTheLast) {
  create_after(false);
  std::vector<Edge> outputs = rank_.forward_of({p_, q_});
  ASSERT_TRUE(rank_.backward({outputs[0]}, Values{1, 1}, true).ok());
  EXPECT_EQ(group_->sums(), 0);
  const std::vector<Edge> rest = {outputs[1]};
  outputs.clear();
  ASSERT_TRUE(rank_.backward(rest, 3).ok());
  EXPECT_EQ(group_->sums(), 1);
}

TEST_F(ReducerAfterBackward, P12ABackwardThatFailsHasStartedNothingAndLeavesTheReducerUsable) {
  create_after(false);
  const auto fan = rank_.fan({{rank_.thrower({{p_, 0}}), 0}, {q_, 0}});
  EXPECT_EQ(rank_.backward(rank_.forward({{fan, 0}}), 1).code(), Code::kUserFailure);
  EXPECT_EQ(group_->sums(), 0);
  EXPECT_TRUE(parallel().poisoned().ok());
  rank_.undefine_grads();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_, q_}), 4).ok());
  EXPECT_EQ(first(q_), 4);
}

TEST_F(ReducerAfterBackward, P14ASecondGroupTakesAllThatABackwardSends) {
  Membership two = membership();
  const auto second = std::make_shared<ScriptedGroup>();
  two.backward_group = second;
  ReducerOptions options = quick_options(true);
  options.schedule = Schedule::kAfterBackward;
  ASSERT_TRUE(rank_.create(two, options).ok());
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 6).ok());
  EXPECT_EQ(group_->sums(), 0);
  EXPECT_EQ(second->sums(), 2);
  // A failure of the second group ends both.
  second->failure = Status(Code::kPeerLost, "a peer is gone");
  rank_.undefine_grads();
  EXPECT_EQ(rank_.backward(rank_.forward_of({p_}), 6).code(), Code::kPeerLost);
  EXPECT_TRUE(group_->aborted);
  EXPECT_TRUE(second->aborted);
  EXPECT_FALSE(parallel().poisoned().ok());
  ASSERT_TRUE(parallel().reset(membership()).ok());
  rank_.undefine_grads();
  ASSERT_TRUE(rank_.backward(rank_.forward_of({p_}), 6).ok());
  EXPECT_EQ(group_->sums(), 2);  // Without a second group, the first one is used.
}

TEST_F(ReducerAfterBackward, P14ASecondGroupOfOtherRanksIsRefused) {
  Membership two = membership();
  two.backward_group = std::make_shared<ScriptedGroup>(3);
  ReducerOptions options = quick_options(false);
  options.schedule = Schedule::kAfterBackward;
  const Status status = rank_.create(two, options);
  ASSERT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.to_string().find("backward group"), std::string::npos);
}

// Parameters a, b, c, and d of 10 floats each.
class ReducerPinned : public ::testing::Test {
 protected:
  static void fill(TestRank& rank) {
    ParameterSpec spec;
    spec.shape = Shape::row_major({10});
    for (const char* name : {"a", "b", "c", "d"}) rank.add(name, spec);
  }
  static Layout pinned(const std::vector<std::size_t>& order) {
    TestRank rank;
    fill(rank);
    std::vector<ParameterInfo> infos;
    for (const auto& p : rank.parameters) infos.push_back({p->name(), p->dtype(), 0, 10, true});
    return *assign_buckets_in_order(infos, std::vector<std::uint64_t>{40, 80}, order);
  }
  static ReducerOptions options(std::optional<Layout> layout) {
    ReducerOptions options = quick_options(false);
    options.rebuild_buckets = true;
    options.pinned_layout = std::move(layout);
    return options;
  }
};

TEST_F(ReducerPinned, P17TheLayoutOfARebuiltReducerIsSavedLoadedAndPinnedInANewOne) {
  constexpr int kRanks = 2;
  std::string saved;
  for (const bool again : {false, true}) {
    const auto memberships = local_memberships(kRanks);
    on_ranks(kRanks, [&](int r) {
      const auto i = static_cast<std::size_t>(r);
      TestRank rank(0, i + 1);
      fill(rank);
      std::optional<Layout> layout;
      if (again) layout = *load_layout(saved);
      ReducerOptions chosen = options(layout);
      chosen.bucket_limits = {40, 80};
      ASSERT_TRUE(rank.create(memberships[i], chosen).ok());
      const Layout first = rank.parallel->reducer().layout();
      for (int pass = 0; pass < 2; ++pass) {
        std::vector<Edge> edges;
        for (const std::size_t k : {2u, 0u, 3u, 1u}) edges.push_back({rank.parameters[k], 0});
        const Status status = rank.backward(rank.forward({{rank.fan(edges), 0}}), Values(10, 1));
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
      const Layout& last = rank.parallel->reducer().layout();
      int broadcasts = 0;
      for (const Started& s : static_cast<LocalGroup&>(*memberships[i].group).started)
        broadcasts += s.collective.op == Op::kBroadcast ? 1 : 0;
      EXPECT_EQ(broadcasts, again ? 0 : 1);
      EXPECT_EQ(first == last, again);
      if (again) {
        EXPECT_EQ(save(last), saved);
      }
      if (!again && r == 0) saved = save(last);
    });
  }
}

TEST_F(ReducerPinned, B4RanksThatPinOtherLayoutsAllRaise) {
  const auto memberships = local_memberships(2);
  on_ranks(2, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    TestRank rank;
    fill(rank);
    const Layout layout = pinned(r == 0 ? std::vector<std::size_t>{0, 1, 2, 3}
                                        : std::vector<std::size_t>{0, 1, 3, 2});
    const Status status = rank.create(memberships[i], options(layout));
    EXPECT_EQ(status.code(), Code::kDisagreement);
    EXPECT_NE(status.to_string().find("pinned_layout " + std::to_string(layout.hash)),
              std::string::npos);
  });
}

TEST_F(ReducerPinned, B5ALayoutOfOtherParametersIsRefusedOnAllRanks) {
  const auto memberships = local_memberships(2);
  on_ranks(2, [&](int r) {
    TestRank rank;
    rank.add("a");
    const Status status =
        rank.create(memberships[static_cast<std::size_t>(r)], options(pinned({3, 2, 1, 0})));
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.to_string().find("names parameter 3, but there are 1"), std::string::npos);
  });
}

TEST_F(ReducerPinned, F4AResetKeepsThePinnedLayout) {
  TestRank rank;
  fill(rank);
  const auto member = [] {
    return Membership{std::make_shared<ScriptedGroup>(), std::make_shared<HashStore>()};
  };
  const Layout layout = pinned({1, 3, 0, 2});
  ASSERT_TRUE(rank.create(member(), options(layout)).ok());
  EXPECT_EQ(rank.parallel->reducer().layout(), layout);
  ASSERT_TRUE(rank.parallel->reset(member()).ok());
  EXPECT_EQ(rank.parallel->reducer().layout(), layout);
}

}  // namespace
}  // namespace lockstep::testing
