// A second thread of a rank beside the one that trains, in many schedules: it aborts the group in
// the middle of a backward, or lets go of its reference to the group (F5); or both threads start
// collectives on one group (F6, F7).
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <utility>

#include "faults/sim/job_for_test.h"
#include "reducer/comm/store.h"
#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"

namespace lockstep::simulated {
namespace {

using simulation::End;
using namespace std::chrono_literals;

constexpr std::uint64_t kSchedulesOfThreads = 150;
constexpr std::size_t kParameters = 4;
constexpr float kGradient = 6;

// A rank with a few parameters of one element, a bucket for each.
struct Model {
  Model() {
    for (std::size_t i = 0; i < kParameters; ++i)
      parameters.push_back(make_ref<Parameter>("p" + std::to_string(i), device, DType::kFloat32,
                                               Shape::row_major({1}), true,
                                               engine.next_sequence()));
  }

  Membership join(Job& job, std::int64_t number, std::uint32_t rank) const {
    return {SimProcessGroup::join(job.network, number, job.members, rank, job.options),
            std::make_shared<PrefixStore>(std::to_string(number), store_of_job)};
  }
  Status create(Membership membership) {
    ReducerOptions options;
    options.bucket_limits = {1};
    options.failure_grace = 50ms;
    auto made = DataParallel::create(parameters, engine, std::move(options), std::move(membership));
    if (!made) return made.error();
    parallel = std::move(*made);
    return {};
  }

  // Every rank has rank + 1 times the gradient.
  Status step(std::uint32_t rank) {
    for (const Ref<Parameter>& parameter : parameters) parameter->undefine_grad();
    std::vector<Edge> outputs;
    const auto module = [this](std::vector<Edge>& made) {
      for (const Ref<Parameter>& parameter : parameters) made.push_back({parameter, 0});
      return Status();
    };
    LOCKSTEP_RETURN_IF_ERROR(parallel->forward(module, outputs));
    const Tensor gradient = *Tensor::empty(device, DType::kFloat32, Shape::row_major({1}));
    const float value = kGradient * static_cast<float>(rank + 1);
    std::memcpy(gradient.data(), &value, sizeof value);
    return engine.backward(outputs, std::vector<Tensor>(outputs.size(), gradient), false);
  }

  bool has_mean(std::uint32_t ranks) const {
    const float mean = kGradient * static_cast<float>(ranks + 1) / 2;
    for (const Ref<Parameter>& parameter : parameters) {
      float value = 0;
      if (!parameter->grad().defined()) return false;
      std::memcpy(&value, parameter->grad().data(), sizeof value);
      if (value != mean) return false;
    }
    return true;
  }

  std::shared_ptr<Store> store_of_job;
  HostDevice device{0};
  Engine engine{0};
  std::vector<Ref<Parameter>> parameters;
  std::unique_ptr<DataParallel> parallel;
};

// A second fiber that acts at some moment of the step.
template <class Act>
simulation::FiberId beside(Job& job, std::uint32_t rank, Act act) {
  const auto moment = std::chrono::microseconds(job.schedule.seed * 37 % 1500);
  return job.scheduler.spawn("second", rank, [&job, moment, act] {
    job.scheduler.sleep_until(job.scheduler.now() + moment);
    act();
  });
}

// The backward ends on every rank, well with the right result or with an error; whoever ended well
// or not, the reducer works again after a reset (F4).
TEST(SecondThread, F5_7AnAbortInTheMiddleOfABackwardEndsItOnEveryRank) {
  std::set<bool> ended_well;
  for (std::uint64_t seed = 1; seed <= kSchedulesOfThreads; ++seed) {
    Job job(3);
    job.schedule.seed = seed;
    job.latency = {std::chrono::microseconds(0), std::chrono::microseconds(20)};
    const auto store = std::make_shared<HashStore>();
    const auto outcome = job.run([&](std::uint32_t rank, SimProcessGroup&) {
      Model model;
      model.store_of_job = store;
      const Membership membership = model.join(job, 1, rank);
      ASSERT_TRUE(model.create(membership).ok());
      const auto stop = [&membership] {
        membership.group->abort(Status(Code::kAborted, "a second thread gave up"));
      };
      const bool acts = rank == 1;
      const auto second = acts ? beside(job, rank, stop) : simulation::FiberId();
      const Status status = model.step(rank);
      if (acts) job.scheduler.join(second);
      ended_well.insert(status.ok());
      if (status.ok()) {
        EXPECT_TRUE(model.has_mean(3)) << "rank " << rank;
      }
      const Status again = model.parallel->reset(model.join(job, 2, rank));
      ASSERT_TRUE(again.ok()) << again.to_string();
      const Status next = model.step(rank);
      ASSERT_TRUE(next.ok()) << next.to_string();
      EXPECT_TRUE(model.has_mean(3)) << "rank " << rank;
    });
    ASSERT_EQ(outcome.end, End::kFinished) << "seed " << seed << "\n" << outcome.wait_graph;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_EQ(ended_well, (std::set<bool>{false, true}));
}

TEST(SecondThread, F5_8AGroupThatASecondThreadDropsLivesAsLongAsItsReducer) {
  for (std::uint64_t seed = 1; seed <= kSchedulesOfThreads; ++seed) {
    Job job(2);
    job.schedule.seed = seed;
    job.latency = {std::chrono::microseconds(0), std::chrono::microseconds(20)};
    const auto store = std::make_shared<HashStore>();
    const auto outcome = job.run([&](std::uint32_t rank, SimProcessGroup&) {
      Model model;
      model.store_of_job = store;
      auto membership = std::make_shared<Membership>(model.join(job, 1, rank));
      ASSERT_TRUE(model.create(*membership).ok());
      const auto second = beside(job, rank, [membership] { membership->group.reset(); });
      const Status status = model.step(rank);
      job.scheduler.join(second);
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_TRUE(model.has_mean(2));
      EXPECT_EQ(membership->group, nullptr);
      EXPECT_TRUE(model.step(rank).ok());
    });
    ASSERT_EQ(outcome.end, End::kFinished) << "seed " << seed << "\n" << outcome.wait_graph;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

// Two threads of each rank start sums of their own, in no common order. Where the orders of two
// ranks differ that is a mismatch (F6); no thread ever has a sum that is not its own.
TEST(SecondThread, F6CollectivesOfTwoThreadsAreRightOrAMismatch) {
  std::set<bool> all_right;
  for (std::uint64_t seed = 1; seed <= kSchedulesOfThreads; ++seed) {
    constexpr std::size_t kEach = 3;
    Job job(3);
    job.schedule.seed = seed;
    bool is_right = true;
    bool is_mismatch = false;
    const auto outcome = job.run([&](std::uint32_t rank, SimProcessGroup& group) {
      std::vector<Work> works(2 * kEach);
      std::vector<std::vector<float>> data(2 * kEach);
      std::vector<Status> statuses(2 * kEach);
      const auto run_half = [&](std::size_t half) {
        for (std::size_t i = half * kEach; i < (half + 1) * kEach; ++i) {
          data[i].assign(half + 1, static_cast<float>(i + 1));  // one element, or two
          Collective collective;
          collective.count = data[i].size();
          collective.data = reinterpret_cast<std::byte*>(data[i].data());
          statuses[i] = group.start(collective, works[i]);
          if (statuses[i].ok()) statuses[i] = works[i].wait(platform::Deadline::never());
        }
      };
      const auto other = job.scheduler.spawn("other", rank, [&] { run_half(1); });
      run_half(0);
      job.scheduler.join(other);
      for (std::size_t i = 0; i < works.size(); ++i) {
        is_right = is_right && statuses[i].ok();
        is_mismatch = is_mismatch || statuses[i].code() == Code::kMismatch;
        if (statuses[i].ok()) {
          EXPECT_EQ(data[i][0], 3 * static_cast<float>(i + 1));
        }
      }
    });
    ASSERT_EQ(outcome.end, End::kFinished) << "seed " << seed << "\n" << outcome.wait_graph;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
    // The ranks that notice it end their groups; others see that.
    EXPECT_EQ(is_mismatch, !is_right) << "seed " << seed;
    all_right.insert(is_right);
  }
  EXPECT_EQ(all_right, (std::set<bool>{false, true}));
}

}  // namespace
}  // namespace lockstep::simulated
