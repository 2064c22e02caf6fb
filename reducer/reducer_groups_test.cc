// Groups that are not the whole job: ranks that differ from those of the job, several groups at
// once, several reducers on one group or one after the other. Clauses G1, F2 to F4, F6 and F7.
// comm/gloo/gloo_groups_test.cc tests the same over sockets.
#include <gtest/gtest.h>

#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using Parallel = std::unique_ptr<DataParallel>;
using std::chrono::seconds;

// One process of the job, with parameters p and q, which its reducers divide between them.
struct Process {
  Parallel reduce(const Ref<Parameter>& parameter, const Membership& membership,
                  bool dynamic = false, platform::Duration grace = seconds(10)) {
    ReducerOptions options = quick_options(dynamic);
    options.failure_grace = grace;
    auto made = DataParallel::create({parameter}, rank.engine, options, membership);
    EXPECT_TRUE(made.has_value()) << made.error().to_string();
    return made ? std::move(*made) : nullptr;
  }
  // Runs a forward whose output is the parameter itself, and returns the outputs.
  std::vector<Edge> forward(DataParallel& parallel, const Ref<Parameter>& parameter) {
    std::vector<Edge> outputs;
    const auto module = [&](std::vector<Edge>& made) {
      made.push_back({parameter, 0});
      return Status();
    };
    forward_status = parallel.forward(module, outputs);
    return outputs;
  }
  Status step(DataParallel& parallel, const Ref<Parameter>& parameter, double value) {
    parameter->undefine_grad();
    const auto outputs = forward(parallel, parameter);
    LOCKSTEP_RETURN_IF_ERROR(std::move(forward_status));
    return rank.backward(outputs, {value, 8});
  }

  TestRank rank;
  Ref<Parameter> p = rank.add("p");
  Ref<Parameter> q = rank.add("q");
  Status forward_status;
};

Values gradient(const Ref<Parameter>& parameter) { return values_of(parameter->grad()); }

// Of four processes, 3 and 1 are ranks 0 and 1 of one group, 0 and 2 those of another.
TEST(SubGroups, G1F2RanksAreThoseOfTheGroupAndGroupsDoNotDisturbEachOther) {
  const auto odd = local_memberships(2);
  const auto even = local_memberships(2);
  const Membership of_process[] = {even[0], odd[1], even[1], odd[0]};
  on_ranks(4, [&](int process) {
    Process self;
    const bool is_odd = process % 2 == 1;
    const Parallel parallel = self.reduce(self.p, of_process[process]);
    ASSERT_NE(parallel, nullptr);
    for (int step = 0; step < 5; ++step) {
      ASSERT_TRUE(self.step(*parallel, self.p, 4.0 * process).ok());
      EXPECT_EQ(gradient(self.p), (Values{is_odd ? 8.0 : 4.0, 8}));
    }
    // Process 1, rank 1 of its group, gives up; the other group continues.
    if (process == 1) parallel->abort(Status(Code::kUserFailure, "no more data"));
    const Status status = self.step(*parallel, self.p, 1);
    EXPECT_EQ(status.ok(), !is_odd) << status.to_string();
    if (process == 3) {
      EXPECT_EQ(status.failure().rank, 1) << status.to_string();
      EXPECT_EQ(status.failure().reported_by, 0);
      EXPECT_EQ(status.code(), Code::kUserFailure);
    }
  });
}

// Two reducers of each process reduce p over all ranks and q over pairs. Their passes are nested,
// and one backward may serve both.
TEST(SubGroups, G1GroupsThatOverlapAreReducedAtTheSameTime) {
  const auto world = local_memberships(4);
  const std::vector<std::vector<Membership>> pairs = {local_memberships(2), local_memberships(2)};
  on_ranks(4, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    Process self;
    const Parallel all = self.reduce(self.p, world[i]);
    const Parallel pair = self.reduce(self.q, pairs[i % 2][i / 2], true);
    // The pairs are ranks 0 and 2, and ranks 1 and 3.
    const double mean_of_pair = 4.0 * (r % 2) + 4;
    for (int step = 0; step < 6; ++step) {
      self.rank.undefine_grads();
      const auto a = self.forward(*all, self.p);
      const auto b = self.forward(*pair, self.q);
      const Values mine{4.0 * r, 8};
      if (step % 3 == 0) {
        ASSERT_TRUE(self.rank.backward(a, mine).ok());
        ASSERT_TRUE(self.rank.backward(b, mine).ok());
      } else if (step % 3 == 1) {
        ASSERT_TRUE(self.rank.backward(b, mine).ok());
        ASSERT_TRUE(self.rank.backward(a, mine).ok());
      } else {
        ASSERT_TRUE(self.rank.backward({a[0], b[0]}, mine).ok());
      }
      EXPECT_EQ(gradient(self.p), (Values{6, 8}));
      EXPECT_EQ(gradient(self.q), (Values{mean_of_pair, 8}));
    }
  });
}

TEST(TwoReducersOnOneGroup, F7PassesOneAfterTheOtherAndInEachOther) {
  for (const bool dynamic : {false, true}) {
    const auto memberships = local_memberships(3);
    on_ranks(3, [&](int r) {
      Process self;
      const Membership& membership = memberships[static_cast<std::size_t>(r)];
      const Parallel first = self.reduce(self.p, membership, dynamic);
      const Parallel second = self.reduce(self.q, membership, dynamic);
      for (int step = 0; step < 6; ++step) {
        self.rank.undefine_grads();
        const auto a = self.forward(*first, self.p);
        const auto b = self.forward(*second, self.q);
        ASSERT_TRUE(self.rank.backward(step % 2 ? a : b, {3.0 * r, 8}).ok());
        ASSERT_TRUE(self.rank.backward(step % 2 ? b : a, {3.0 * r, 8}).ok());
        double mean = 0;
        for (int i = 0; i < 3; ++i)
          mean = rounded(DType::kFloat32,
                         mean + rounded(DType::kFloat32, 3.0 * i * factor_of(DType::kFloat32, 3)));
        EXPECT_EQ(gradient(self.p)[0], mean);
        EXPECT_EQ(gradient(self.q)[0], mean);
      }
    });
  }
}

// Their buckets are equal in everything: op, count, dtype, bucket, pass. The sums of p and q must
// not be mixed up.
TEST(TwoReducersOnOneGroup, F3F7ABackwardOfTheOneDoesNotMeetThatOfTheOther) {
  const auto memberships = local_memberships(2);
  on_ranks(2, [&](int r) {
    Process self;
    const Membership& membership = memberships[static_cast<std::size_t>(r)];
    const Parallel first = self.reduce(self.p, membership);
    const Parallel second = self.reduce(self.q, membership);
    const auto a = self.forward(*first, self.p);
    const auto b = self.forward(*second, self.q);
    const Status status = self.rank.backward(r == 0 ? a : b, 1);
    EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
  });
}

TEST(TwoReducersOnOneGroup, F7F4WhenOneFailsTheOtherIsToldAndBothCanBeReset) {
  const auto memberships = local_memberships(2);
  const auto later = local_memberships(2);
  on_ranks(2, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    Process self;
    const Parallel first = self.reduce(self.p, memberships[i]);
    const Parallel second = self.reduce(self.q, memberships[i]);
    if (r == 1) first->abort(Status(Code::kUserFailure, "no more data"));
    for (DataParallel* parallel : {first.get(), second.get()}) {
      const Status status = self.step(*parallel, parallel == first.get() ? self.p : self.q, 1);
      ASSERT_FALSE(status.ok());
      EXPECT_NE(status.to_string().find("no more data"), std::string::npos) << status.to_string();
      EXPECT_EQ(status.failure().rank, 1);
    }
    ASSERT_TRUE(first->reset(later[i]).ok());
    ASSERT_TRUE(second->reset(later[i]).ok());
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(self.step(*first, self.p, 2.0 * r).ok());
      ASSERT_TRUE(self.step(*second, self.q, 4.0 * r).ok());
      EXPECT_EQ(gradient(self.p), (Values{1, 8}));
      EXPECT_EQ(gradient(self.q), (Values{2, 8}));
    }
  });
}

// The group reports a bucket of another reducer, here one that is in no layout of this one.
TEST(TwoReducersOnOneGroup, F2F7ABucketOfTheOtherIsNotTakenForOnesOwn) {
  const auto group = std::make_shared<ScriptedGroup>();
  const Membership membership{group, std::make_shared<HashStore>()};
  Process self;
  const Parallel first = self.reduce(self.p, membership);
  const Parallel second = self.reduce(self.q, membership);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  Failure cause;
  cause.code = Code::kTransport;
  cause.definite = true;
  cause.bucket = 7;
  cause.reducer_id = second->flight_record().reducer_id;
  cause.collective = "all_reduce";
  group->late_failure = Status(cause);
  const Status status = self.step(*first, self.p, 1);
  EXPECT_EQ(status.code(), Code::kTransport) << status.to_string();
  EXPECT_EQ(status.failure().bucket, kNone) << status.to_string();
  EXPECT_TRUE(status.failure().parameters.empty()) << status.to_string();
  // The failure of its own bucket names the bucket's parameters.
  cause.bucket = 0;
  group->late_failure = Status(cause);
  const Status own = self.step(*second, self.q, 1);
  EXPECT_EQ(own.code(), Code::kTransport) << own.to_string();
  EXPECT_EQ(own.failure().bucket, 0) << own.to_string();
  EXPECT_EQ(own.failure().parameters, std::vector<std::string>{"q"});
}

// Both groups have failed when the first of them is waited for, and ends the backward.
TEST(TwoReducersOnTwoGroups, F2F7WhatAGroupKnowsIsToldInItAndNotWhatEndedTheOther) {
  const auto group_that_ends_with = [](Code code, const char* detail) {
    auto group = std::make_shared<ScriptedGroup>();
    group->late_failure = Status(code, detail);
    group->late_failure.failure().collective = name_of(Op::kAllReduceSum);
    return Membership{group, std::make_shared<HashStore>()};
  };
  Process self;
  const auto reduce = [&](const Ref<Parameter>& parameter, Code code, const char* detail) {
    return self.reduce(parameter, group_that_ends_with(code, detail), false,
                       std::chrono::milliseconds(5));
  };
  const Parallel first = reduce(self.p, Code::kTransport, "a cable");
  const Parallel second = reduce(self.q, Code::kPeerLost, "is gone");
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  std::vector<Edge> outputs = self.forward(*first, self.p);
  outputs.push_back(self.forward(*second, self.q).front());
  const Status status = self.rank.backward(outputs, {1, 8});
  EXPECT_FALSE(status.ok());
  const auto ended_by = [](const Parallel& parallel, const char* detail) {
    return parallel->poisoned().to_string().find(detail) != std::string::npos;
  };
  EXPECT_TRUE(ended_by(first, "a cable")) << first->poisoned().to_string();
  EXPECT_EQ(first->poisoned().failure().parameters, std::vector<std::string>{"p"});
  EXPECT_TRUE(ended_by(second, "is gone")) << second->poisoned().to_string();
}

// One store holds the flight records of both.
TEST(TwoReducersOnOneGroup, T1EachIsDiagnosedByItself) {
  const auto memberships = local_memberships(2);
  on_ranks(2, [&](int r) {
    Process self;
    const Membership& membership = memberships[static_cast<std::size_t>(r)];
    const Parallel first = self.reduce(self.p, membership);
    const Parallel second = self.reduce(self.q, membership);
    ASSERT_TRUE(self.step(*second, self.q, 1).ok());
    const Status cause(Code::kUserFailure, "given up");
    for (DataParallel* parallel : {first.get(), second.get()}) {
      parallel->abort(cause);
      const Result<Diagnosis> diagnosis = parallel->diagnose(seconds(20));
      ASSERT_TRUE(diagnosis.has_value());
      EXPECT_TRUE(diagnosis->silent.empty());
      EXPECT_EQ(diagnosis->records[0].next_sequence, parallel == first.get() ? 0 : 1);
      EXPECT_FALSE(diagnosis->difference.has_value());
    }
  });
}

TEST(ReducerAfterAnother, F5_4TheSameParametersOnTheSameGroupAndOnANewOne) {
  for (const bool views : {false, true}) {
    const auto memberships = local_memberships(2);
    const auto later = local_memberships(2);
    on_ranks(2, [&](int r) {
      const auto i = static_cast<std::size_t>(r);
      TestRank rank;
      const auto p = rank.add("p");
      for (const Membership& membership : {memberships[i], memberships[i], later[i]}) {
        ReducerOptions options = quick_options(false);
        options.gradient_as_bucket_view = views;
        const auto made = DataParallel::create({p}, rank.engine, options, membership);
        ASSERT_TRUE(made.has_value()) << made.error().to_string();
        for (int step = 0; step < 3; ++step) {
          // In view mode the gradient of the step before lies in the bucket, even in that of a
          // reducer that was destroyed.
          if (p->grad().defined()) p->fill_grad_with_zeros();
          std::vector<Edge> outputs;
          ASSERT_TRUE((*made)
                          ->forward(
                              [&](std::vector<Edge>& edges) {
                                edges.push_back({p, 0});
                                return Status();
                              },
                              outputs)
                          .ok());
          ASSERT_TRUE(rank.backward(outputs, {4.0 * r, 8}).ok());
          EXPECT_EQ(gradient(p), (Values{2, 8}));
        }
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::testing
