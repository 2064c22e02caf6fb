// What the abort of a user means (F5): a healthy rank's user ends its process group, or its
// reducer. That rank is the cause, for certain, on itself and on its peers, wherever it was;
// nothing works until the reset, and everything does after it.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <utility>

#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

constexpr int kAbortingRanks = 3;
constexpr int kAborter = 1;
constexpr const char* kGivenUp = "the user has given up";

// What a user may say; these are also codes of process groups, and of a rank's own errors.
const Code kAbortCodes[] = {Code::kAborted, Code::kUserFailure, Code::kTimeout};

void expect_named(const Status& status, int rank, Code code) {
  ASSERT_EQ(status.code(), code) << status.to_string();
  const Failure& failure = status.failure();
  EXPECT_EQ(failure.rank, kAborter) << failure.to_string();
  EXPECT_EQ(failure.reported_by, rank) << failure.to_string();
  EXPECT_TRUE(failure.definite) << failure.to_string();
  EXPECT_NE(failure.detail.find(kGivenUp), std::string::npos) << failure.to_string();
}

struct AbortingRanks {
  std::vector<Membership> memberships = local_memberships(kAbortingRanks);
  std::latch constructed{kAbortingRanks};

  ProcessGroup& group(int r) { return *memberships[static_cast<std::size_t>(r)].group; }
  Status create(int r, TestRank& rank) {
    rank.add("p");
    rank.add("q");
    Status status = rank.create(memberships[static_cast<std::size_t>(r)], quick_options(false));
    constructed.arrive_and_wait();
    return status;
  }
};

// A node over both parameters, in which the user of the aborting rank gives up by `abort`.
Ref<Node> node_that_aborts(TestRank& rank, bool is_aborter, std::function<void()> abort) {
  return rank.node({{rank.parameters[0], 0}, {rank.parameters[1], 0}},
                   [is_aborter, abort = std::move(abort)](auto in, auto out, const auto&) {
                     if (is_aborter) abort();
                     for (Tensor& each : out) each = in[0];
                     return Status();
                   });
}

TEST(UserAbort, F5_13OfTheGroupBeforeTheFirstLaunchPoisonsAndIsNamedByAll) {
  for (const Code code : kAbortCodes) {
    AbortingRanks ranks;
    on_ranks(kAbortingRanks, [&](int r) {
      TestRank rank;
      ASSERT_TRUE(ranks.create(r, rank).ok());
      const Ref<Node> node = node_that_aborts(
          rank, r == kAborter, [&] { ranks.group(r).abort(Status(code, kGivenUp)); });
      const Status status = rank.backward(rank.forward({{node, 0}}), 1);
      expect_named(status, r, code);
      EXPECT_FALSE(rank.parallel->poisoned().ok());
      rank.forward_of({rank.parameters[0]});
      EXPECT_EQ(rank.forward_status.code(), Code::kPoisoned);
      EXPECT_EQ(rank.forward_status.failure().rank, kAborter);
    });
  }
}

// As a model does that is run again in a checkpoint, and gives up there.
TEST(UserAbort, F5OfTheReducerInsideItsBackwardEndsThatAndTheReducerCanGo) {
  AbortingRanks ranks;
  on_ranks(kAbortingRanks, [&](int r) {
    TestRank rank;
    ASSERT_TRUE(ranks.create(r, rank).ok());
    const Ref<Node> node = node_that_aborts(
        rank, r == kAborter, [&] { rank.parallel->abort(Status(Code::kAborted, kGivenUp)); });
    expect_named(rank.backward(rank.forward({{node, 0}}), 1), r, Code::kAborted);
    EXPECT_FALSE(rank.parallel->poisoned().ok());
    rank.parallel.reset();  // a check ends the process if it takes the backward for a running one
  });
}

TEST(UserAbort, F5_9OfTheReducerBetweenForwardAndBackwardIsWhatTheBackwardRaises) {
  for (const Code code : kAbortCodes) {
    AbortingRanks ranks;
    on_ranks(kAbortingRanks, [&](int r) {
      TestRank rank;
      ASSERT_TRUE(ranks.create(r, rank).ok());
      const std::vector<Edge> outputs = rank.forward_of(rank.parameters);
      if (r == kAborter) rank.parallel->abort(Status(code, kGivenUp));
      expect_named(rank.backward(outputs, 1), r, code);
      EXPECT_FALSE(rank.parallel->poisoned().ok());
    });
  }
}

TEST(UserAbort, F5_12BetweenTwoBackwardsOfAPassIsWhatTheSecondOneRaises) {
  AbortingRanks ranks;
  on_ranks(kAbortingRanks, [&](int r) {
    TestRank rank;
    ASSERT_TRUE(ranks.create(r, rank).ok());
    const std::vector<Edge> outputs = rank.forward_of(rank.parameters);
    ASSERT_TRUE(rank.backward({outputs[0]}, 1, true).ok());
    if (r == kAborter) rank.parallel->abort(Status(Code::kUserFailure, kGivenUp));
    expect_named(rank.backward({outputs[1]}, 1), r, Code::kUserFailure);
  });
}

TEST(UserAbort, F5_11DuringConstructionIsNamedByAll) {
  for (const Code code : kAbortCodes) {
    AbortingRanks ranks;
    on_ranks(kAbortingRanks, [&](int r) {
      TestRank rank;
      if (r == kAborter) ranks.group(r).abort(Status(code, kGivenUp));
      expect_named(ranks.create(r, rank), r, code);
    });
  }
}

TEST(UserAbort, F5F4DuringAResetIsNamedByAllAndTheNextResetWorks) {
  AbortingRanks ranks;
  std::vector<Membership> next = local_memberships(kAbortingRanks);
  std::vector<Membership> last = local_memberships(kAbortingRanks);
  on_ranks(kAbortingRanks, [&](int r) {
    const auto index = static_cast<std::size_t>(r);
    TestRank rank;
    ASSERT_TRUE(ranks.create(r, rank).ok());
    if (r == kAborter) next[index].group->abort(Status(Code::kUserFailure, kGivenUp));
    expect_named(rank.parallel->reset(next[index]), r, Code::kUserFailure);
    expect_named(rank.parallel->poisoned(), r, Code::kUserFailure);
    ASSERT_TRUE(rank.parallel->reset(last[index]).ok());
    ASSERT_TRUE(rank.backward(rank.forward_of(rank.parameters), 3).ok());
    EXPECT_EQ(values_of(rank.parameters[0]->grad())[0], 3);
  });
}

// The peers come to the collective when it has failed. The group has reported the abort already
// when the reducer learns of it.
TEST(UserAbort, F2OfWhatIsInFlightIsToldOnce) {
  AbortingRanks ranks;
  std::latch aborted{1};
  on_ranks(kAbortingRanks, [&](int r) {
    TestRank rank;
    ASSERT_TRUE(ranks.create(r, rank).ok());
    const auto pass_on = [](auto in, auto out) {
      for (Tensor& each : out) each = in[0];
      return Status();
    };
    const Ref<Node> late =
        rank.node({{rank.parameters[0], 0}}, [&](auto in, auto out, const auto&) {
          ranks.group(r).abort(Status(Code::kUserFailure, kGivenUp));
          aborted.count_down();
          return pass_on(in, out);
        });
    // q, whose bucket is the first, is reached before `late`.
    const Ref<Node> first =
        rank.node({{rank.parameters[1], 0}, {late, 0}}, [&](auto in, auto out, const auto&) {
          if (r != kAborter) aborted.wait();
          return pass_on(in, out);
        });
    const Status status = rank.backward(rank.forward({{first, 0}}), 1);
    expect_named(status, r, Code::kUserFailure);
    EXPECT_EQ(status.failure().later.empty(), r == kAborter) << status.to_string();
  });
}

// F7: both reducers of a group fail, and each says what it saw itself.
TEST(UserAbort, F5F7OfAGroupWithTwoReducersIsKnownToBoth) {
  for (const Code code : kAbortCodes) {
    std::vector<Membership> memberships = local_memberships(2);
    std::latch constructed{2};
    on_ranks(2, [&](int r) {
      const auto index = static_cast<std::size_t>(r);
      TestRank rank;
      const Ref<Parameter> p = rank.add("p");
      const Ref<Parameter> q = rank.add("q");
      auto first = DataParallel::create({p}, rank.engine, quick_options(false), memberships[index]);
      auto second =
          DataParallel::create({q}, rank.engine, quick_options(false), memberships[index]);
      ASSERT_TRUE(first.has_value() && second.has_value());
      constructed.arrive_and_wait();
      std::vector<Edge> outputs;
      const auto module_of = [](const Ref<Parameter>& parameter) {
        return [parameter](std::vector<Edge>& made) {
          made = {{parameter, 0}};
          return Status();
        };
      };
      ASSERT_TRUE((*first)->forward(module_of(p), outputs).ok());
      ASSERT_TRUE((*second)->forward(module_of(q), outputs).ok());
      if (r == kAborter) memberships[index].group->abort(Status(code, kGivenUp));
      expect_named(rank.backward({outputs[0]}, 1), r, code);
      expect_named(rank.backward({outputs[1]}, 1), r, code);
      for (const auto* each : {&first, &second}) {
        const Status& poison = (**each)->poisoned();
        expect_named(poison, r, code);
        const std::size_t views = r == kAborter ? 0 : 1;
        EXPECT_EQ(poison.failure().later.size(), views) << poison.to_string();
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::testing
