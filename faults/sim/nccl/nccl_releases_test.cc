// What differs between the releases of NCCL that can be simulated, each with a release in which it
// does not hold; and the production group over each of them: what goes wrong ends on every rank,
// and nothing breaks a rule of NCCL's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "faults/sim/nccl/test_nccl_run.h"
#include "faults/sim/scheduler/test_leaks.h"
#include "reducer/comm/nccl/nccl_process_group.h"

namespace lockstep::simulated {
namespace {

using simulation::End;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

using Change = std::function<void(NcclRun&)>;

constexpr Duration kWhile = std::chrono::microseconds(100);

// How the runs of a program ended, in each of some schedules.
std::set<End> ends_of(std::string_view release, int ranks, const RankBody& body,
                      const Change& setup = {}) {
  std::set<End> ends;
  for (const simulation::Schedule& schedule : many_schedules(10)) {
    NcclRun run(ranks);
    run.schedule = schedule;
    run.options.version = *faults::nccl_release(release);
    if (setup) setup(run);
    ends.insert(run.run(body));
    EXPECT_EQ(run.findings_text(), "");
    EXPECT_THAT(run.misuses, ::testing::IsEmpty());
  }
  return ends;
}

std::set<std::string> releases_where(const std::function<bool(std::string_view)>& holds) {
  std::set<std::string> names;
  for (const faults::NcclRelease& release : faults::kNcclReleases)
    if (holds(release.name)) names.emplace(release.name);
  return names;
}

NcclResult state_of(SimRank& on, NcclComm comm) {
  NcclResult state = NcclResult::kSuccess;
  EXPECT_EQ(on.api().comm_get_async_error(comm, &state), NcclResult::kSuccess);
  return state;
}

// Polls for a while, and returns the error if there is one.
NcclResult seen(SimRank& on, NcclComm comm) {
  NcclResult state = NcclResult::kSuccess;
  for (int i = 0; i < 100; ++i) {
    state = state_of(on, comm);
    if (state != NcclResult::kSuccess && state != NcclResult::kInProgress) break;
    on.pause();
  }
  return state;
}

// Rank 1 is gone. Whether rank 0 gets an error, and how long its abort takes.
struct Seen {
  std::set<bool> is_told;
  Duration longest_abort{0};
};
Seen with_a_broken_link(std::string_view release) {
  Seen result;
  const auto ends = ends_of(release, 2, [&](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    if (on.rank() == 0) {
      start(on, comm, data);
      result.is_told.insert(seen(on, comm) == NcclResult::kRemoteError);
    }
    const auto begin = platform::now();
    EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kSuccess);
    result.longest_abort = std::max<Duration>(result.longest_abort, platform::now() - begin);
    on.finish();
  });
  EXPECT_EQ(ends, kAllFinish);
  return result;
}

TEST(NcclReleases, OnlySomeTellThatAConnectionIsLost) {
  const auto told = releases_where([](std::string_view release) {
    const Seen seen = with_a_broken_link(release);
    EXPECT_EQ(seen.is_told.size(), 1U) << release;
    return seen.is_told.contains(true);
  });
  EXPECT_EQ(told, (std::set<std::string>{"2.19", "2.21", "2.23", "2.28", "2.32"}));
}

TEST(NcclReleases, TheAbortOfSomeHangsAfterAnErrorOfTheNetwork) {
  const auto hanging = releases_where(
      [](std::string_view release) { return with_a_broken_link(release).longest_abort > 1h; });
  EXPECT_EQ(hanging, (std::set<std::string>{"2.19", "2.21", "2.23"}));
}

// The sum is behind something else on its stream, which takes a while.
TEST(NcclReleases, TheAbortOfOldOnesWaitsForItsWork) {
  const auto waiting = releases_where([](std::string_view release) {
    std::set<bool> waits;
    const auto ends = ends_of(release, 1, [&](SimRank& on) {
      const NcclComm comm = on.connected();
      const Tensor data = ones(on);
      const auto begin = platform::now();
      on.device().submit(on.stream(), "backward", {{data.data(), 64, true}}, [&] {
        while (platform::now() - begin < kWhile) on.pause();
      });
      EXPECT_EQ(on.settled(comm, start(on, comm, data)), NcclResult::kSuccess);
      EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kSuccess);
      waits.insert(platform::now() - begin >= kWhile);
      on.finish();
    });
    EXPECT_EQ(ends, kAllFinish);
    EXPECT_EQ(waits.size(), 1U) << release;
    return waits.contains(true);
  });
  EXPECT_EQ(waiting, (std::set<std::string>{"2.18", "2.19", "2.21"}));
}

// Rank 0 destroys a communicator whose call has failed, and then adds on another one.
TEST(NcclReleases, TheFailedDestructionOfNewOnesLeavesTheThreadInsideOfAGroup) {
  const simulation::MayLeak deadlocks;
  const auto inside = releases_where([](std::string_view release) {
    std::set<bool> is_done;
    for (const simulation::Schedule& schedule : many_schedules(3)) {
      NcclRun run(2);
      run.schedule = schedule;
      run.options.version = *faults::nccl_release(release);
      run.options.faults = {{SimNcclFault::Kind::kResult, 0, "ncclAllReduce", 1}};
      const End end = run.run([&](SimRank& on) {
        const NcclComm failing = on.connected();
        const NcclComm healthy = on.connected();
        const Tensor data = ones(on);
        if (on.rank() == 0) {
          EXPECT_EQ(start(on, failing, data), NcclResult::kInternalError);
          EXPECT_EQ(on.api().comm_destroy(failing), NcclResult::kInternalError);
        }
        start(on, healthy, data);
        EXPECT_EQ(seen(on, healthy), NcclResult::kSuccess);
        on.meet();
        EXPECT_EQ(on.api().comm_abort(healthy), NcclResult::kSuccess);
        on.finish();
        if (on.rank() == 0) is_done.insert(on.values(data) == std::vector<float>(16, 2));
      });
      EXPECT_EQ(end, End::kFinished);
    }
    EXPECT_EQ(is_done.size(), 1U);
    return is_done.contains(false);
  });
  EXPECT_EQ(inside, (std::set<std::string>{"2.26", "2.27", "2.28", "2.32"}));
}

TEST(NcclReleases, TheNewestHangsInTheDestructionAfterAShrinkWithTheFlagToAbort) {
  const simulation::MayLeak deadlocks;
  for (const std::string_view release : {"2.28", "2.32"}) {
    for (const int flags : {kNcclShrinkDefault, kNcclShrinkAbort}) {
      const auto ends = ends_of(release, 3, [flags](SimRank& on) {
        const NcclComm comm = on.connected();
        if (on.rank() == 2) return on.destroy(comm);
        int gone = 2;
        NcclComm child = nullptr;
        EXPECT_EQ(on.api().comm_shrink(comm, &gone, 1, &child, nullptr, flags),
                  NcclResult::kSuccess);
        EXPECT_EQ(on.settled(comm), NcclResult::kSuccess);
        on.destroy(child);
        on.destroy(comm);
      });
      const bool hangs = release == "2.32" && flags == kNcclShrinkAbort;
      EXPECT_EQ(ends, std::set{hangs ? End::kDeadlock : End::kFinished}) << release << flags;
    }
  }
}

// --- The production group over each release.

class NcclReleaseF : public testing::TestWithParam<faults::NcclRelease> {
 protected:
  static NcclOptions quick() {
    NcclOptions options;
    options.timeout = 5ms;
    options.connect_timeout = 200ms;
    options.poll = 50us;
    options.notice = 500us;
    options.grace = 1ms;
    options.end_timeout = 2ms;
    return options;
  }

  using Member = std::function<void(SimRank&, NcclProcessGroup&, const std::shared_ptr<Store>&)>;
  // Three ranks with a group each. Nothing that they do is a race or breaks a rule, and it ends.
  void in_groups(const Member& member, faults::Kind fault, bool is_kept = false) const {
    const simulation::MayLeak groups_whose_abort_hangs;
    NcclOptions options = quick();
    options.keeps_for_shrink = is_kept;
    auto store = std::make_shared<HashStore>();
    const auto plan = [&](NcclRun& run) {
      faults::Fault planned;
      planned.kind = fault;
      planned.rank = 1;
      run.plan.faults = {planned};
      store = std::make_shared<HashStore>();
    };
    const auto body = [&](SimRank& on) {
      auto group =
          NcclProcessGroup::connect(on.api(), on.device(), store, on.rank(), on.ranks(), options);
      ASSERT_TRUE(group.has_value()) << group.error().to_string();
      member(on, **group, store);
      group->reset();
    };
    EXPECT_EQ(ends_of(GetParam().name, 3, body, plan), kAllFinish);
  }

  bool tells() const { return faults::nccl_profile(GetParam().version).reports_network_errors; }
};

Collective sum_of(SimRank& on, const Tensor& tensor) {
  Collective sum;
  sum.count = static_cast<std::uint64_t>(tensor.elements());
  sum.data = tensor.data();
  sum.device = &on.device();
  sum.ready = on.device().record(on.stream());
  return sum;
}

// Also where NCCL says too early that a sum has succeeded, and refuses the next one.
TEST_P(NcclReleaseF, OneSumAfterTheOtherIsRight) {
  in_groups(
      [](SimRank& on, NcclProcessGroup& group, const auto&) {
        const Tensor data = ones(on);
        for (const float expected : {3.0F, 9.0F}) {
          const Status status = sim::run(group, sum_of(on, data));
          ASSERT_TRUE(status.ok()) << status.to_string();
          EXPECT_EQ(on.values(data), std::vector<float>(16, expected));
        }
        on.meet();
      },
      faults::Kind::kSlowThread);
}

TEST(NcclReleases, OnlyOneSaysThatASumHasSucceededWhileItGoesOn) {
  const auto says_so = [](std::string_view release) {
    bool is_early = false;
    ends_of(release, 2, [&](SimRank& on) {
      const NcclComm comm = on.connected();
      const Tensor data = ones(on);
      const NcclResult result = start(on, comm, data);
      is_early = is_early ||
                 (result == NcclResult::kSuccess && state_of(on, comm) == NcclResult::kInProgress);
      EXPECT_EQ(on.settled(comm), NcclResult::kSuccess);
      on.finish();
      on.destroy(comm);
    });
    return is_early;
  };
  EXPECT_EQ(releases_where(says_so), std::set<std::string>{"2.23"});
}

// Where NCCL says nothing, the deadline of the group ends what is in flight.
TEST_P(NcclReleaseF, F1ALostConnectionEndsOnEveryRank) {
  in_groups(
      [this](SimRank& on, NcclProcessGroup& group, const auto&) {
        const Tensor data = ones(on);
        const Status status = sim::run(group, sum_of(on, data));
        EXPECT_EQ(status.code(), tells() ? Code::kPeerLost : Code::kTimeout) << status.to_string();
        on.meet();
      },
      faults::Kind::kLinkReset);
}

// An abort that hangs keeps nobody, and the GPU has let go of the memory all the same: it is used
// again at once.
TEST_P(NcclReleaseF, F1WhatAnAbortHasStoppedIsOverEvenIfTheAbortHangs) {
  const bool hangs = faults::nccl_profile(GetParam().version).aborts_may_hang;
  std::size_t hanging = 0;
  in_groups(
      [&](SimRank& on, NcclProcessGroup& group, const auto&) {
        const Tensor data = ones(on);
        const Status status = sim::run(group, sum_of(on, data));
        ASSERT_FALSE(status.ok());
        EXPECT_THAT(status.failure().later, Not(Contains(HasSubstr("must not be used again"))));
        for (const std::string& line : status.failure().later)
          hanging += line.find("ncclCommAbort did not return") != std::string::npos ? 1 : 0;
        on.device().submit(on.stream(), "next step", {{data.data(), 64, true}}, [] {});
        on.finish();
        on.meet();
      },
      faults::Kind::kLinkReset);
  EXPECT_EQ(hanging > 0, hangs) << hanging;
}

// After a timeout the ranks go on without rank 1: by ncclCommShrink where the release can revoke.
TEST_P(NcclReleaseF, F4TheOthersGoOnInASmallerGroup) {
  in_groups(
      [](SimRank& on, NcclProcessGroup& group, const std::shared_ptr<Store>& store) {
        if (on.rank() == 1) return on.meet();
        const Tensor data = ones(on);
        EXPECT_EQ(sim::run(group, sum_of(on, data)).code(), Code::kTimeout);
        NcclOptions options = quick();
        options.name = "smaller";
        auto smaller = NcclProcessGroup::shrink(group, {1}, store, options);
        ASSERT_TRUE(smaller.has_value()) << smaller.error().to_string();
        const bool is_revoked = GetParam().version >= 22807;
        EXPECT_STREQ((*smaller)->origin(),
                     is_revoked ? "ncclCommShrink" : "ncclCommInitRankConfig");
        const Tensor again = ones(on);
        EXPECT_TRUE(sim::run(**smaller, sum_of(on, again)).ok());
        EXPECT_EQ(on.values(again), std::vector<float>(16, 2));
        on.meet();
      },
      faults::Kind::kSlowThread, true);
}

INSTANTIATE_TEST_SUITE_P(Releases, NcclReleaseF, testing::ValuesIn(faults::kNcclReleases),
                         [](const auto& release) {
                           std::string name(release.param.name);
                           name.replace(name.find('.'), 1, "_");
                           return "Nccl" + name;
                         });

TEST(NcclReleases, ANameThatIsNotOneIsNoRelease) {
  EXPECT_EQ(faults::nccl_release("2.28"), 22809);
  for (const std::string_view name : {"", "2.2", "2.28.9", "2.17", "3.0"})
    EXPECT_EQ(faults::nccl_release(name), std::nullopt) << name;
}

}  // namespace
}  // namespace lockstep::simulated
