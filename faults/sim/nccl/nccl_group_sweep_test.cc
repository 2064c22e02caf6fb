// Claim: whichever call of NCCL goes wrong, of whichever function, on whichever rank, and however:
// every rank's connect() and collectives end, with the result or an error (F1, F2), the group is
// destroyed, and no rule of NCCL's is broken on the way (F5). Method: one fault for each function,
// number of the call, rank and kind, in some schedules. A failure names all four. The same of the
// GPU: an operation fails or never ends, or memory is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>

#include "faults/sim/nccl/test_nccl_run.h"
#include "faults/sim/scheduler/test_leaks.h"
#include "reducer/comm/nccl/nccl_process_group.h"

namespace lockstep::simulated {
namespace {

using simulation::End;
using namespace std::chrono_literals;

constexpr std::uint64_t kSeeds = 2;
constexpr std::uint64_t kGpuFaults = 36;  // more than a rank submits

NcclOptions options_of() {
  NcclOptions options;
  options.timeout = 5ms;
  options.connect_timeout = 20ms;
  options.poll = 50us;
  options.notice = 500us;
  options.grace = 1ms;
  options.end_timeout = 20ms;
  return options;
}

// Collectives of every way through a group; the first error.
Status use(SimRank& on, NcclProcessGroup& group) {
  const Tensor tensor = on.made(std::vector<float>(6, 1));
  Collective plain;
  plain.count = 6;
  plain.data = tensor.data();
  plain.device = &on.device();
  Collective ordered = plain;
  ordered.reduction = Reduction::kRankOrdered;
  Collective checked = ordered;
  checked.verify = true;
  Collective broadcast = plain;
  broadcast.op = Op::kBroadcast;
  for (Collective* each : {&plain, &ordered, &checked, &broadcast}) {
    each->ready = on.device().record(on.stream());
    LOCKSTEP_RETURN_IF_ERROR(sim::run(group, *each));
  }
  const std::vector<float> sums(6, 8);
  EXPECT_EQ(on.values(tensor), sums);
  return {};
}

struct Sweep {
  int failed = 0;  // ranks
  int ended = 0;
};

void run_with(const SimNcclFault& fault, const simulation::Schedule& schedule, Sweep& sweep,
              const std::function<void(NcclRun&)>& setup = {}) {
  NcclRun run(2);
  run.schedule = schedule;
  run.options.faults = {fault};
  if (setup) setup(run);
  const auto store = std::make_shared<HashStore>();
  const End end = run.run([&](SimRank& on) {
    Result<std::unique_ptr<NcclProcessGroup>> group = NcclProcessGroup::connect(
        on.api(), on.device(), store, on.rank(), on.ranks(), options_of());
    const Status status = group ? use(on, **group) : group.error();
    if (group) group->reset();
    ++sweep.ended;
    if (status.ok()) return;
    ++sweep.failed;
    const Failure& failure = status.failure();
    EXPECT_TRUE(failure.rank != kNone || failure.suspect != kNone) << status.to_string();
    EXPECT_FALSE(failure.detail.empty());
  });
  EXPECT_EQ(end, End::kFinished) << run.wait_graph;
  EXPECT_EQ(run.findings_text(), "");
  EXPECT_THAT(run.misuses, ::testing::IsEmpty());
  // Of what NCCL does not destroy nothing can be done.
  const bool may_stay = fault.function == "ncclCommDestroy";
  EXPECT_TRUE(run.left_open == 0 || may_stay);
}

// One run for each kind of fault, process, number of the call up to `calls`, and schedule. It ends
// with the first that fails. How many there were.
template <class Run>
int for_every_fault(const char* function, int processes, std::uint64_t calls, const Run& run) {
  using Kind = SimNcclFault::Kind;
  int runs = 0;
  for (const Kind kind : {Kind::kResult, Kind::kAsyncError, Kind::kHang}) {
    for (int process = 0; process < processes; ++process) {
      for (std::uint64_t number = 1; number <= calls; ++number) {
        for (const simulation::Schedule& schedule : many_schedules(kSeeds)) {
          run(SimNcclFault{kind, process, function, number, NcclResult::kSystemError}, schedule);
          ++runs;
          if (!::testing::Test::HasFailure()) continue;
          ADD_FAILURE() << function << " number " << number << " of process " << process
                        << ", kind " << static_cast<int>(kind) << ", policy "
                        << static_cast<int>(schedule.policy) << ", seed " << schedule.seed;
          return runs;
        }
      }
    }
  }
  return runs;
}

class NcclSweepF1 : public ::testing::TestWithParam<const char*> {};

TEST_P(NcclSweepF1, WhicheverCallGoesWrongAllRanksEnd) {
  Sweep all;
  const int runs = for_every_fault(GetParam(), 2, 6, [&](const auto& fault, const auto& schedule) {
    run_with(fault, schedule, all);
  });
  EXPECT_EQ(all.ended, 2 * runs);
  const std::string function = GetParam();
  const bool is_of_the_end = function == "ncclCommFinalize" || function == "ncclCommDestroy";
  EXPECT_EQ(all.failed == 0, is_of_the_end);
}

INSTANTIATE_TEST_SUITE_P(Functions, NcclSweepF1,
                         ::testing::Values("ncclGetUniqueId", "ncclCommInitRankConfig",
                                           "ncclCommCount", "ncclCommUserRank", "ncclCommCuDevice",
                                           "ncclCommGetAsyncError", "ncclGroupStart",
                                           "ncclGroupEnd", "ncclAllGather", "ncclAllReduce",
                                           "ncclBroadcast", "ncclSend", "ncclRecv",
                                           "ncclCommFinalize", "ncclCommDestroy"),
                         [](const auto& param) { return std::string(param.param); });

// --- The same of a group that fails, and goes on with fewer ranks (F4).

Status sum_of_ones(SimRank& on, NcclProcessGroup& group) {
  const Tensor ones = on.made(std::vector<float>(6, 1));
  Collective sum;
  sum.count = 6;
  sum.data = ones.data();
  sum.device = &on.device();
  sum.ready = on.device().record(on.stream());
  LOCKSTEP_RETURN_IF_ERROR(sim::run(group, sum));
  EXPECT_EQ(on.values(ones), std::vector<float>(6, static_cast<float>(group.size())));
  return {};
}

// Rank 1 leaves out the second sum, and the others go on without it.
Status fail_and_shrink(SimRank& on, NcclProcessGroup& group, const std::shared_ptr<Store>& store,
                       std::set<std::string>& origins) {
  LOCKSTEP_RETURN_IF_ERROR(sum_of_ones(on, group));
  if (on.rank() == 1) return {};
  EXPECT_FALSE(sum_of_ones(on, group).ok());
  NcclOptions options = options_of();
  options.name = "smaller";
  options.connect_timeout = 100ms;  // one may come late: out of a revocation that hangs
  const auto smaller = NcclProcessGroup::shrink(group, {1}, store, options);
  if (!smaller) return smaller.error();
  origins.insert((*smaller)->origin());
  return sum_of_ones(on, **smaller);
}

// Where they went on.
std::set<std::string> shrink_with(const SimNcclFault& fault, const simulation::Schedule& schedule,
                                  Sweep& sweep) {
  NcclRun run(3);
  run.schedule = schedule;
  run.options.faults = {fault};
  const auto store = std::make_shared<HashStore>();
  std::set<std::string> origins;
  const End end = run.run([&](SimRank& on) {
    NcclOptions options = options_of();
    options.keeps_for_shrink = true;
    Result<std::unique_ptr<NcclProcessGroup>> group =
        NcclProcessGroup::connect(on.api(), on.device(), store, on.rank(), on.ranks(), options);
    const Status status = group ? fail_and_shrink(on, **group, store, origins) : group.error();
    on.meet();  // rank 1 is there for as long as the others
    if (group) group->reset();
    ++sweep.ended;
    if (status.ok()) return;
    ++sweep.failed;
    EXPECT_NE(status.code(), Code::kInternal) << status.to_string();
    EXPECT_FALSE(status.failure().detail.empty());
  });
  EXPECT_EQ(end, End::kFinished) << run.wait_graph;
  EXPECT_EQ(run.findings_text(), "");
  EXPECT_THAT(run.misuses, ::testing::IsEmpty());
  EXPECT_TRUE(run.left_open == 0 || fault.function == "ncclCommDestroy") << run.left_open;
  return origins;
}

class NcclShrinkSweepF4 : public ::testing::TestWithParam<const char*> {};

TEST_P(NcclShrinkSweepF4, WhicheverCallGoesWrongAllRanksEnd) {
  Sweep all;
  std::set<std::string> origins;
  const int runs = for_every_fault(GetParam(), 3, 3, [&](const auto& fault, const auto& schedule) {
    origins.merge(shrink_with(fault, schedule, all));
  });
  EXPECT_EQ(all.ended, 3 * runs);
  EXPECT_EQ(origins.count("ncclCommShrink"), 1u);  // where the fault did not come up
  // Where one rank cannot keep its communicator all make a new one; a shrink that fails is an
  // error.
  const std::string function = GetParam();
  EXPECT_EQ(origins.count("ncclCommInitRankConfig"), function == "ncclCommRevoke" ? 1u : 0u);
  const bool is_an_error = function == "ncclCommShrink";
  EXPECT_EQ(all.failed > 0, is_an_error);
}

// The calls of that way alone. Of what a group calls without failing, the sweep above has the rest;
// ncclCommSplit and ncclRedOpCreatePreMulSum it never calls.
INSTANTIATE_TEST_SUITE_P(Functions, NcclShrinkSweepF4,
                         ::testing::Values("ncclCommAbort", "ncclCommRevoke", "ncclCommShrink"),
                         [](const auto& param) { return std::string(param.param); });

// --- The same of a GPU that goes wrong, below what NCCL does and beside it.

enum class GpuFault : std::uint8_t { kFailingOperation, kStoppingOperation, kFailingAllocation };

struct PlannedGpuFault {
  GpuFault kind;
  std::uint64_t number;
  int rank;
  void put_into(DeviceOptions& options) const {
    if (kind == GpuFault::kFailingOperation) options.failing_operation = number;
    if (kind == GpuFault::kStoppingOperation) options.stopping_operation = number;
    if (kind == GpuFault::kFailingAllocation) options.failing_allocation = number;
  }
};

// As use(), for a GPU that may be the user's to notice: then he ends the group.
Status use_gpu(SimRank& on, NcclProcessGroup& group) {
  const platform::Deadline soon = platform::Deadline::in(50ms);
  const auto give_up = [&](const Status& status) {
    group.abort(status);
    return status;
  };
  Result<Tensor> tensor = Tensor::empty(on.device(), DType::kFloat32, Shape::row_major({6}));
  if (!tensor) return give_up(tensor.error());
  std::vector<float> values(6, 1);
  const Status written = write(on.device(), std::as_bytes(std::span(values)), tensor->data(), soon);
  if (!written.ok()) return give_up(written);
  Collective collective;
  collective.count = 6;
  collective.data = tensor->data();
  collective.device = &on.device();
  for (int i = 0; i < 4; ++i) {
    if (i > 0) collective.reduction = Reduction::kRankOrdered;
    collective.verify = i == 2;
    if (i == 3) collective.op = Op::kBroadcast;
    collective.ready = on.device().record(on.stream());
    LOCKSTEP_RETURN_IF_ERROR(sim::run(group, collective));
  }
  const Status got =
      read(on.device(), tensor->data(), std::as_writable_bytes(std::span(values)), soon);
  if (!got.ok()) return give_up(got);
  EXPECT_EQ(values, std::vector<float>(6, 8));
  return {};
}

// What is left of a GPU that stopped: the group does not get back what it gave to it.
std::uint64_t run_on_gpu(const PlannedGpuFault& fault, const simulation::Schedule& schedule,
                         Sweep& sweep) {
  const bool stops = fault.kind == GpuFault::kStoppingOperation;
  const simulation::MayLeak stuck_groups;
  NcclRun run(2);
  run.schedule = schedule;
  run.gpus = [&](int rank, DeviceOptions& options) {
    if (rank == fault.rank) fault.put_into(options);
  };
  const auto store = std::make_shared<HashStore>();
  std::uint64_t kept = 0;
  const End end = run.run([&](SimRank& on) {
    Result<std::unique_ptr<NcclProcessGroup>> group = NcclProcessGroup::connect(
        on.api(), on.device(), store, on.rank(), on.ranks(), options_of());
    const Status status = group ? use_gpu(on, **group) : group.error();
    if (group) group->reset();
    ++sweep.ended;
    const bool may_keep = stops && on.rank() == fault.rank;
    EXPECT_TRUE(on.device().allocated_bytes() == 0 || may_keep) << status.to_string();
    kept += on.device().allocated_bytes();
    if (status.ok()) return;
    ++sweep.failed;
    const Failure& failure = status.failure();
    EXPECT_FALSE(failure.detail.empty());
    if (failure.rank == kNone && failure.suspect == kNone) {  // what the user himself met
      EXPECT_EQ(on.rank(), fault.rank) << status.to_string();
      return;
    }
    // Of a GPU that says nothing nobody knows whose it is.
    EXPECT_TRUE(stops || failure.rank == fault.rank) << status.to_string();
    if (!may_keep) return;
    EXPECT_THAT(failure.later, ::testing::Contains(::testing::HasSubstr("must not be used again")));
  });
  EXPECT_EQ(end, End::kFinished) << run.wait_graph;
  EXPECT_EQ(run.findings_text(), "");
  EXPECT_THAT(run.misuses, ::testing::IsEmpty());
  EXPECT_EQ(run.left_open, 0U);
  return kept;
}

class NcclGpuSweepF1 : public ::testing::TestWithParam<GpuFault> {};

TEST_P(NcclGpuSweepF1, WhateverTheGpuDoesAllRanksEnd) {
  Sweep all;
  int runs = 0;
  std::uint64_t kept = 0;
  for (int rank = 0; rank < 2; ++rank) {
    for (std::uint64_t number = 1; number <= kGpuFaults; ++number) {
      for (const simulation::Schedule& schedule : many_schedules(kSeeds)) {
        kept += run_on_gpu({GetParam(), number, rank}, schedule, all);
        ++runs;
        ASSERT_FALSE(HasFailure())
            << "number " << number << " of rank " << rank << ", policy "
            << static_cast<int>(schedule.policy) << ", seed " << schedule.seed;
      }
    }
  }
  EXPECT_EQ(all.ended, 2 * runs);
  EXPECT_GT(all.failed, 0);
  EXPECT_LT(all.failed, 2 * runs);  // beyond the last one there is no fault
  EXPECT_EQ(kept > 0, GetParam() == GpuFault::kStoppingOperation);
}

INSTANTIATE_TEST_SUITE_P(Faults, NcclGpuSweepF1,
                         ::testing::Values(GpuFault::kFailingOperation,
                                           GpuFault::kStoppingOperation,
                                           GpuFault::kFailingAllocation),
                         [](const auto& param) -> std::string {
                           if (param.param == GpuFault::kFailingOperation) return "Operation";
                           if (param.param == GpuFault::kStoppingOperation) return "Stop";
                           return "Allocation";
                         });

// Slower than the deadline, and just within it.
TEST(NcclSlowF1, ASlowInitializationEndsInATimeoutOrWell) {
  for (const auto& [time, is_in_time] : {std::pair{15ms, true}, std::pair{40ms, false}}) {
    for (const simulation::Schedule& schedule : many_schedules(kSeeds)) {
      Sweep sweep;
      run_with({}, schedule, sweep, [&, span = time](NcclRun& run) {
        run.options.faults.clear();
        run.options.init_time = span;
      });
      EXPECT_EQ(sweep.failed, is_in_time ? 0 : 2);
    }
  }
}

}  // namespace
}  // namespace lockstep::simulated
