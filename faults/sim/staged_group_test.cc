// StagedGroup over the simulated group and the simulated GPU: in every schedule the sum of what
// was on the GPU when its stream had got there, and nothing out of order.
#include "reducer/comm/staged_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <utility>

#include "faults/sim/device/sim_device.h"
#include "faults/sim/job_for_test.h"
#include "faults/sim/scheduler/scheduler.h"
#include "reducer/tensor/tensor.h"

namespace lockstep::simulated {
namespace {

using simulation::End;
using simulation::Policy;
using testing::HasSubstr;
using namespace std::chrono_literals;

// A rank with a GPU. All waits have an end, so that a failure shows.
struct GpuRank {
  GpuRank(Job& job, std::uint32_t number, DeviceOptions options = {})
      : gpu(std::move(options)), rank(number) {
    std::shared_ptr<ProcessGroup> host =
        SimProcessGroup::join(job.network, 1, job.members, number, job.options);
    group = std::move(*StagedGroup::create(std::move(host), gpu));
  }

  Tensor made(std::int64_t elements) {
    return *Tensor::empty(gpu, DType::kFloat32, Shape::row_major({elements}));
  }
  // By a copy that the stream gets to when the schedule likes.
  void set(const Tensor& tensor, float value) {
    const std::vector<float> values(static_cast<std::size_t>(tensor.elements()), value);
    gpu.upload(gpu.current_stream(), std::as_bytes(std::span(values)).data(), tensor.data(),
               values.size() * sizeof(float));
  }
  std::vector<float> get(const Tensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    EXPECT_TRUE(read(gpu, tensor.data(), std::as_writable_bytes(std::span(values)),
                     platform::Deadline::in(1h))
                    .ok());
    return values;
  }
  Collective on_gpu(const Tensor& tensor) {
    Collective collective;
    collective.count = static_cast<std::uint64_t>(tensor.elements());
    collective.data = tensor.data();
    collective.device = &gpu;
    collective.ready = gpu.record(gpu.current_stream());
    return collective;
  }
  std::string findings() const {
    std::string all;
    for (const Finding& finding : gpu.findings()) all += finding.to_string() + "\n";
    return all;
  }

  SimDevice gpu;
  const std::uint32_t rank;
  std::unique_ptr<StagedGroup> group;
};

template <class Body>
void in_many_schedules(std::uint32_t ranks, const Body& body) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Job job(ranks);
    job.schedule = {seed % 2 == 0 ? Policy::kRandomWalk : Policy::kStayBiased, seed, {}};
    job.options.timeout = 10s;
    const auto outcome = job.run([&](std::uint32_t rank, SimProcessGroup&) { body(job, rank); });
    ASSERT_EQ(outcome.end, End::kFinished) << seed << "\n" << outcome.wait_graph;
  }
}

TEST(StagedGroup, F8SumsWhatTheStreamHadWrittenByThenAndNothingIsOutOfOrder) {
  in_many_schedules(3, [](Job& job, std::uint32_t rank) {
    GpuRank on(job, rank);
    std::vector<Tensor> tensors;
    std::vector<Work> works(4);
    for (std::size_t i = 0; i < works.size(); ++i) {
      tensors.push_back(on.made(7));
      on.set(tensors[i], static_cast<float>(10 * i + rank));
      ASSERT_TRUE(on.group->start(on.on_gpu(tensors[i]), works[i]).ok());
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      ASSERT_TRUE(works[i].wait(platform::Deadline::in(1h)).ok());
      EXPECT_EQ(on.get(tensors[i]), std::vector<float>(7, static_cast<float>(30 * i + 3)));
    }
    EXPECT_EQ(on.findings(), "");
  });
}

TEST(StagedGroup, KeepsOneOrderOfTheGpusCollectivesAndTheHosts) {
  in_many_schedules(2, [](Job& job, std::uint32_t rank) {
    GpuRank on(job, rank);
    const Tensor tensor = on.made(3);
    on.set(tensor, 1);
    std::int32_t number = 5;
    Collective of_host;
    of_host.dtype = DType::kInt32;
    of_host.count = 1;
    of_host.data = reinterpret_cast<std::byte*>(&number);
    Collective gathered = on.on_gpu(tensor);
    const Tensor all = on.made(6);
    gathered.op = Op::kAllGather;
    gathered.gathered = all.data();
    gathered.ready = on.gpu.record(on.gpu.current_stream());
    Collective sent = on.on_gpu(tensor);
    sent.op = Op::kBroadcast;
    sent.root = 1;
    std::vector<Work> works(4);
    ASSERT_TRUE(on.group->start(on.on_gpu(tensor), works[0]).ok());
    ASSERT_TRUE(on.group->start(of_host, works[1]).ok());
    ASSERT_TRUE(works[0].wait(platform::Deadline::in(1h)).ok());
    if (rank == 1) on.set(tensor, 8);
    sent.ready = gathered.ready = on.gpu.record(on.gpu.current_stream());
    ASSERT_TRUE(on.group->start(sent, works[2]).ok());
    ASSERT_TRUE(works[2].wait(platform::Deadline::in(1h)).ok());
    ASSERT_TRUE(on.group->start(gathered, works[3]).ok());
    ASSERT_TRUE(works[3].wait(platform::Deadline::in(1h)).ok());
    ASSERT_TRUE(works[1].done());
    EXPECT_EQ(number, 10);
    EXPECT_EQ(on.get(all), std::vector<float>(6, 8));
    EXPECT_EQ(on.findings(), "");
  });
}

TEST(StagedGroup, ReachesItsOwnGpuAndTheHostAndNoOther) {
  Job job(1);
  job.run([&](std::uint32_t rank, SimProcessGroup&) {
    GpuRank on(job, rank);
    SimDevice other;
    HostDevice host;
    EXPECT_TRUE(on.group->can_reach(on.gpu));
    EXPECT_TRUE(on.group->can_reach(host));
    EXPECT_FALSE(on.group->can_reach(other));
  });
}

// A user ends the group for a cause that names no collective.
TEST(StagedGroup, F2WhatAnEndedGroupRefusesIsNamed) {
  Job job(1);
  job.run([&](std::uint32_t rank, SimProcessGroup&) {
    GpuRank on(job, rank);
    const Tensor tensor = on.made(3);
    on.set(tensor, 1);
    EXPECT_TRUE(on.group->health().ok());
    on.group->abort(Status(Code::kAborted, "a user ends it"));
    EXPECT_EQ(on.group->health().failure().detail, "a user ends it");
    Work work;
    const Status refused = on.group->start(on.on_gpu(tensor), work);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.failure().collective, "all_reduce");
    EXPECT_EQ(refused.failure().sequence, 0);
    EXPECT_THAT(refused.to_string(), HasSubstr("a user ends it"));
  });
}

// A GPU that stops: its rank gives up in time, and the others learn of it from the group.
TEST(StagedGroup, F1AGpuThatStopsEndsTheGroupOnAllRanksInTime) {
  in_many_schedules(2, [](Job& job, std::uint32_t rank) {
    GpuRank on(job, rank);
    const Tensor tensor = on.made(3);
    on.set(tensor, 1);
    if (rank == 1) on.gpu.stop();
    Work work;
    ASSERT_TRUE(on.group->start(on.on_gpu(tensor), work).ok());
    const Status status = work.wait(platform::Deadline::in(1h));
    EXPECT_TRUE(work.done());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.failure().reported_by, static_cast<int>(rank));
    EXPECT_EQ(status.failure().collective, "all_reduce");
    if (rank == 1) {
      EXPECT_EQ(status.code(), Code::kTimeout);
      EXPECT_EQ(status.failure().rank, 1);
      EXPECT_FALSE(status.failure().definite);  // The GPU may wait for another rank.
      EXPECT_THAT(status.to_string(), HasSubstr("simulated device"));
    }
    EXPECT_FALSE(on.group->start(on.on_gpu(tensor), work).ok());
  });
}

// Each collective that is queued behind the first one once waited for the GPU, too.
TEST(StagedGroup, F1AGpuThatStopsCostsOneTimeoutHoweverMuchIsQueued) {
  in_many_schedules(1, [](Job& job, std::uint32_t rank) {
    GpuRank on(job, rank);
    const Tensor tensor = on.made(3);
    on.set(tensor, 1);
    on.gpu.stop();
    const platform::Duration begun = platform::now();
    std::vector<Work> works(5);
    for (Work& work : works) ASSERT_TRUE(on.group->start(on.on_gpu(tensor), work).ok());
    for (Work& work : works)
      EXPECT_EQ(work.wait(platform::Deadline::in(1h)).code(), Code::kTimeout);
    EXPECT_LT(platform::now() - begun, job.options.timeout + 1s);
  });
}

// The first wait of the receiving thread fails. The other collective may be on its way to the
// group, in it, or done there; in no schedule does it succeed.
TEST(StagedGroup, F5NoCollectiveSucceedsAfterOneThatFailedOnTheGpu) {
  in_many_schedules(1, [](Job& job, std::uint32_t rank) {
    bool has_failed = false;
    DeviceOptions options;
    options.fails_call = [&has_failed] {
      const bool is_receiver =
          simulation::Scheduler::running()->current_name().ends_with("receives");
      return is_receiver && !std::exchange(has_failed, true);
    };
    GpuRank on(job, rank, options);
    const Tensor tensor = on.made(3);
    const Tensor other = on.made(3);
    on.set(tensor, 1);
    on.set(other, 1);
    Work first;
    Work second;
    ASSERT_TRUE(on.group->start(on.on_gpu(tensor), first).ok());
    const bool is_started = on.group->start(on.on_gpu(other), second).ok();
    EXPECT_FALSE(first.wait(platform::Deadline::in(1h)).ok());
    EXPECT_FALSE(is_started && second.wait(platform::Deadline::in(1h)).ok());
  });
}

TEST(StagedGroup, F2AGpuThatFailsSaysWhat) {
  in_many_schedules(2, [](Job& job, std::uint32_t rank) {
    DeviceOptions options;
    if (rank == 0) options.failing_operation = 2;  // the copy to the host
    GpuRank on(job, rank, options);
    const Tensor tensor = on.made(3);
    on.set(tensor, 1);
    Work work;
    ASSERT_TRUE(on.group->start(on.on_gpu(tensor), work).ok());
    const Status status = work.wait(platform::Deadline::in(1h));
    ASSERT_FALSE(status.ok());
    if (rank == 0) {
      EXPECT_THAT(status.to_string(), HasSubstr("operation 2, download, failed"));
      EXPECT_EQ(status.failure().rank, 0);  // no peer is at fault, and the rank knows it
      EXPECT_TRUE(status.failure().definite);
    }
  });
}

TEST(StagedGroup, F5EndsWithCollectivesInFlight) {
  in_many_schedules(2, [](Job& job, std::uint32_t rank) {
    Work work;
    GpuRank on(job, rank);
    const Tensor tensor = on.made(3);
    on.set(tensor, 1);
    if (rank == 0) {
      ASSERT_TRUE(on.group->start(on.on_gpu(tensor), work).ok());
    }
    on.group.reset();
    EXPECT_TRUE(work.done());
    EXPECT_EQ(on.findings(), "");
  });
}

}  // namespace
}  // namespace lockstep::simulated
