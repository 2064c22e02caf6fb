// SimNccl: communicators, launches, groups, what goes wrong and how that looks.
#include "faults/sim/nccl/sim_nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "faults/sim/nccl/test_nccl_run.h"
#include "faults/sim/scheduler/test_leaks.h"

namespace lockstep::simulated {
namespace {

using simulation::End;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr NcclRedOp kPlainSum = NcclRedOp::kSum;
using Setup = std::function<void(NcclRun&)>;

// What came of a program in each of some schedules.
struct Outcomes {
  std::set<End> ends;
  int runs = 0;
  int with_findings = 0;
  std::string findings;    // of the last run that had any
  std::string wait_graph;  // of the last run that had one
  std::size_t misuses = 0;
  std::set<std::string> misused;  // what they say
  std::size_t left_open = 0;
};

Outcomes outcomes(int ranks, const RankBody& body, const Setup& setup = {}) {
  Outcomes all;
  for (const simulation::Schedule& schedule : many_schedules(15)) {
    NcclRun run(ranks);
    run.schedule = schedule;
    if (setup) setup(run);
    all.ends.insert(run.run(body));
    ++all.runs;
    if (!run.findings.empty()) {
      ++all.with_findings;
      all.findings = run.findings_text();
    }
    if (!run.wait_graph.empty()) all.wait_graph = run.wait_graph;
    all.misuses += run.misuses.size();
    all.misused.insert(run.misuses.begin(), run.misuses.end());
    all.left_open += run.left_open;
  }
  return all;
}

const std::set<End> kAllHang{End::kDeadlock};

void finishes(int ranks, const RankBody& body, const Setup& setup = {}) {
  const Outcomes all = outcomes(ranks, body, setup);
  EXPECT_EQ(all.ends, kAllFinish) << all.wait_graph;
  EXPECT_EQ(all.findings, "");
  EXPECT_EQ(all.misuses, 0U);
  EXPECT_EQ(all.left_open, 0U);
}

NcclResult sum(SimRank& on, NcclComm comm, const Tensor& data) {
  return on.settled(comm, start(on, comm, data));
}
void abort(SimRank& on, NcclComm comm) {
  EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kSuccess);
}
// The state once it is an error.
NcclResult error_of(SimRank& on, NcclComm comm) {
  NcclResult state = NcclResult::kSuccess;
  while (state == NcclResult::kSuccess || state == NcclResult::kInProgress) {
    EXPECT_EQ(on.api().comm_get_async_error(comm, &state), NcclResult::kSuccess);
    on.pause();
  }
  return state;
}
SimNcclFault fault(SimNcclFault::Kind kind, const char* function, std::uint64_t number,
                   NcclResult result = NcclResult::kInternalError, int process = 0) {
  return {kind, process, function, number, result};
}

// --- Launches and streams.

TEST(SimNccl, WhatWasLaunchedIsOnItsStreamOnceTheCallHasSucceeded) {
  const auto program = [](bool waits) {
    return outcomes(2, [waits](SimRank& on) {
      const NcclComm comm = on.connected();
      const Tensor data = ones(on);
      const Stream other = *on.device().new_stream();
      NcclResult result = start(on, comm, data);
      if (waits) result = on.settled(comm, result);
      on.device().wait(other, on.device().record(on.stream()));
      on.device().submit(other, "consumer", {{data.data(), 64, true}}, {});
      on.settled(comm, result);
      on.finish();
      on.destroy(comm);
      on.device().synchronize(on.device().record(other), on.deadline()).ignore();
    });
  };
  EXPECT_EQ(program(true).with_findings, 0);
  const Outcomes early = program(false);
  EXPECT_GT(early.with_findings, early.runs / 2);
  EXPECT_THAT(early.findings, AllOf(HasSubstr("consumer writes"), HasSubstr("ncclAllReduce")));
}

TEST(SimNccl, ABufferThatAnotherStreamWritesIsARace) {
  const Outcomes all = outcomes(2, [](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    const Stream other = *on.device().new_stream();
    on.device().wait(other, on.device().record(on.stream()));
    on.device().submit(other, "backward", {{data.data() + 32, 4, true}}, {});
    EXPECT_EQ(sum(on, comm, data), NcclResult::kSuccess);
    on.finish();
    on.destroy(comm);
    on.device().synchronize(on.device().record(other), on.deadline()).ignore();
  });
  EXPECT_EQ(all.with_findings, all.runs);
  EXPECT_THAT(all.findings, AllOf(HasSubstr("backward writes"), HasSubstr("ncclAllReduce writes")));
}

TEST(SimNccl, OperationsOfOneCommunicatorAreInOrderAcrossStreams) {
  finishes(2, [](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    const Stream other = *on.device().new_stream();
    on.device().wait(other, on.device().record(on.stream()));
    for (int i = 0; i < 6; ++i)
      EXPECT_EQ(on.settled(comm, on.api().all_reduce(
                                     data.data(), data.data(), 16, kNcclFloat, kPlainSum, comm,
                                     on.device().native(i % 2 == 0 ? on.stream() : other))),
                NcclResult::kSuccess);
    on.device().wait(on.stream(), on.device().record(other));
    EXPECT_EQ(on.values(data), std::vector<float>(16, 64));
    on.destroy(comm);
  });
}

TEST(SimNccl, NothingOfAGroupRunsBeforeItsOutermostEnd) {
  finishes(2, [](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    EXPECT_EQ(on.api().group_start(), NcclResult::kSuccess);
    EXPECT_EQ(on.api().group_start(), NcclResult::kSuccess);
    EXPECT_EQ(start(on, comm, data), NcclResult::kSuccess);
    EXPECT_EQ(on.api().group_end(), NcclResult::kSuccess);
    EXPECT_EQ(on.settled(comm), NcclResult::kSuccess);
    for (int i = 0; i < 3; ++i) on.pause();
    EXPECT_EQ(on.values(data), std::vector<float>(16, 1));
    EXPECT_EQ(on.settled(comm, on.api().group_end()), NcclResult::kSuccess);
    EXPECT_EQ(on.values(data), std::vector<float>(16, 2));
    on.destroy(comm);
  });
}

TEST(SimNccl, AGroupWithAWrongCallRunsNotAtAll) {
  finishes(2, [](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    EXPECT_EQ(on.api().group_start(), NcclResult::kSuccess);
    EXPECT_EQ(start(on, comm, data), NcclResult::kSuccess);
    EXPECT_EQ(on.api().send(data.data(), 1, kNcclFloat, 2, comm, on.native()),
              NcclResult::kInvalidArgument);
    EXPECT_EQ(on.api().group_end(), NcclResult::kInvalidArgument);
    EXPECT_EQ(on.values(data), std::vector<float>(16, 1));
    EXPECT_EQ(on.settled(comm), NcclResult::kInvalidArgument);
    abort(on, comm);
  });
}

TEST(SimNccl, TwoThatSendBeforeTheyReceiveWaitForEachOtherUnlessBuffersAreLargeEnough) {
  const simulation::MayLeak deadlocks;
  const RankBody body = [](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    const int peer = 1 - on.rank();
    for (const bool sends : {true, false})
      EXPECT_EQ(on.settled(
                    comm, sends ? on.api().send(data.data(), 8, kNcclFloat, peer, comm, on.native())
                                : on.api().receive(data.data() + 32, 8, kNcclFloat, peer, comm,
                                                   on.native())),
                NcclResult::kSuccess);
    on.destroy(comm);  // which waits
  };
  const Outcomes all = outcomes(2, body);
  EXPECT_EQ(all.ends, kAllHang);
  finishes(2, body, [](NcclRun& run) { run.options.buffered_bytes = 32; });
}

// --- Blocking communicators.

TEST(SimNccl, ABlockingCommunicatorIsUpWhenTheCallReturns) {
  finishes(3, [](SimRank& on) {
    NcclComm comm = nullptr;
    EXPECT_EQ(on.api().comm_init_rank_config(&comm, 3, on.shared_id(), on.rank(), nullptr),
              NcclResult::kSuccess);
    const Tensor data = ones(on);
    EXPECT_EQ(start(on, comm, data), NcclResult::kSuccess);
    EXPECT_EQ(on.values(data), std::vector<float>(16, 3));
    on.destroy(comm);
  });
}

TEST(SimNccl, AnInitializationTakesTheTimeItIsGiven) {
  finishes(
      2,
      [](SimRank& on) {
        const NcclComm comm = on.connected();
        EXPECT_GE(platform::now(), platform::Duration(3ms));
        on.destroy(comm);
      },
      [](NcclRun& run) { run.options.init_time = 3ms; });
}

TEST(SimNccl, AnIdIsForOneCommunicator) {
  finishes(1, [](SimRank& on) {
    NcclComm comm = nullptr;
    NcclComm other = nullptr;
    NcclUniqueId id = on.shared_id();
    EXPECT_EQ(on.api().comm_init_rank_config(&comm, 1, id, 1, nullptr),
              NcclResult::kInvalidArgument);
    EXPECT_EQ(on.api().comm_init_rank_config(&comm, 1, id, 0, nullptr), NcclResult::kSuccess);
    EXPECT_EQ(on.api().comm_init_rank_config(&other, 1, id, 0, nullptr), NcclResult::kInvalidUsage);
    id.internal[0] = 'x';
    EXPECT_EQ(on.api().comm_init_rank_config(&other, 1, id, 0, nullptr),
              NcclResult::kInvalidArgument);
    on.destroy(comm);
  });
}

// --- What goes wrong.

TEST(SimNccl, APeerThatAbortsIsARemoteErrorForThoseThatUseItsLinks) {
  finishes(3, [](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    if (on.rank() == 2) abort(on, comm);
    on.meet();
    if (on.rank() == 2) return;
    start(on, comm, data);
    EXPECT_EQ(error_of(on, comm), NcclResult::kRemoteError);
    EXPECT_THAT(on.api().get_last_error(comm), HasSubstr("was closed"));
    EXPECT_EQ(start(on, comm, data), NcclResult::kRemoteError);
    on.meet_without(1);
    abort(on, comm);
    on.finish();  // the stream goes on
  });
}

TEST(SimNccl, AFailedOperationEndsWithTheAbortAndNotBefore) {
  const Outcomes all = outcomes(2, [](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    if (on.rank() == 0) {
      start(on, comm, data);
      EXPECT_EQ(error_of(on, comm), NcclResult::kRemoteError);
      EXPECT_FALSE(on.device()
                       .synchronize(on.device().record(on.stream()), platform::Deadline::in(1ms))
                       .ok());
    }
    abort(on, comm);
    on.finish();
  });
  EXPECT_EQ(all.ends, kAllFinish) << all.wait_graph;
}

TEST(SimNccl, WhereNobodyNoticesAPeerTheOperationHangsAndSaysNothing) {
  const simulation::MayLeak deadlocks;
  for (const bool is_old : {false, true}) {
    const Outcomes all = outcomes(
        2,
        [](SimRank& on) {
          const NcclComm comm = on.connected();
          const Tensor data = ones(on);
          if (on.rank() == 1) return abort(on, comm);
          on.settled(comm, start(on, comm, data));
          for (int i = 0; i < 10; ++i) on.pause();
          EXPECT_EQ(on.settled(comm), NcclResult::kSuccess);
        },
        [&](NcclRun& run) {
          run.options.peers_are_noticed = is_old;
          if (is_old) run.options.version = 21805;
        });
    EXPECT_EQ(all.ends, kAllHang);
    EXPECT_THAT(all.wait_graph, HasSubstr("the abort of a communicator"));
  }
}

TEST(SimNccl, ACallFailsAsPlanned) {
  finishes(
      1,
      [](SimRank& on) {
        const NcclComm comm = on.connected();
        const Tensor data = ones(on);
        EXPECT_EQ(sum(on, comm, data), NcclResult::kSuccess);
        EXPECT_EQ(sum(on, comm, data), NcclResult::kSystemError);
        EXPECT_EQ(on.settled(comm), NcclResult::kSystemError);
        abort(on, comm);
        NcclUniqueId id;
        EXPECT_EQ(on.api().get_unique_id(&id), NcclResult::kInternalError);
      },
      [](NcclRun& run) {
        run.options.faults = {
            fault(SimNcclFault::Kind::kResult, "ncclAllReduce", 2, NcclResult::kSystemError),
            fault(SimNcclFault::Kind::kResult, "ncclGetUniqueId", 2)};
      });
}

TEST(SimNccl, AnOperationFailsOrHangsAsPlanned) {
  for (const SimNcclFault::Kind kind : {SimNcclFault::Kind::kAsyncError, SimNcclFault::Kind::kHang})
    finishes(
        2,
        [kind](SimRank& on) {
          const NcclComm comm = on.connected();
          const Tensor data = ones(on);
          EXPECT_EQ(sum(on, comm, data), NcclResult::kSuccess);
          on.finish();
          start(on, comm, data);
          if (on.rank() == 1 && kind == SimNcclFault::Kind::kAsyncError) {
            EXPECT_EQ(error_of(on, comm), NcclResult::kInternalError);
          } else {
            EXPECT_EQ(on.settled(comm), NcclResult::kSuccess);
          }
          EXPECT_FALSE(
              on.device()
                  .synchronize(on.device().record(on.stream()), platform::Deadline::in(5ms))
                  .ok());
          on.meet();
          abort(on, comm);
          on.finish();
        },
        [kind](NcclRun& run) {
          run.options.faults = {fault(kind, "", 2, NcclResult::kInternalError, 1)};
        });
}

TEST(SimNccl, AnInitializationFailsOrHangsAsPlanned) {
  for (const SimNcclFault::Kind kind : {SimNcclFault::Kind::kAsyncError, SimNcclFault::Kind::kHang})
    finishes(
        2,
        [kind](SimRank& on) {
          NcclComm comm = nullptr;
          NcclConfig config = on.config();
          EXPECT_EQ(on.api().comm_init_rank_config(&comm, 2, on.shared_id(), on.rank(), &config),
                    NcclResult::kInProgress);
          NcclResult state = NcclResult::kInProgress;
          for (int i = 0; i < 20 && state == NcclResult::kInProgress; ++i) {
            on.api().comm_get_async_error(comm, &state);
            on.pause();
          }
          const bool is_hit = on.rank() == 0;
          EXPECT_EQ(state, !is_hit                             ? NcclResult::kSuccess
                           : kind == SimNcclFault::Kind::kHang ? NcclResult::kInProgress
                                                               : NcclResult::kSystemError);
          on.meet();
          abort(on, comm);
        },
        [kind](NcclRun& run) {
          run.options.faults = {fault(kind, "ncclCommInitRankConfig", 1, NcclResult::kSystemError)};
        });
}

TEST(SimNccl, FaultsOfThePlanActOnMessagesAndLaunches) {
  using faults::Kind;
  const auto with = [](Kind kind, std::uint32_t duration_us = 0) {
    return [=](NcclRun& run) {
      faults::Fault one;
      one.kind = kind;
      one.rank = 1;
      one.duration_us = duration_us;
      run.plan.faults = {one};
    };
  };
  const auto body = [](NcclResult of_one, NcclResult of_zero, platform::Duration least) {
    return [=](SimRank& on) {
      const NcclComm comm = on.connected();
      const Tensor data = ones(on);
      NcclResult state = sum(on, comm, data);
      const bool is_done =
          on.device().synchronize(on.device().record(on.stream()), platform::Deadline::in(1s)).ok();
      on.api().comm_get_async_error(comm, &state);
      EXPECT_EQ(state, on.rank() == 1 ? of_one : of_zero);
      EXPECT_EQ(is_done, least < 1s);
      EXPECT_GE(platform::now(), least);
      on.meet();
      abort(on, comm);
      on.finish();
    };
  };
  const auto ok = NcclResult::kSuccess;
  const auto remote = NcclResult::kRemoteError;
  finishes(2, body(ok, ok, 70us), with(Kind::kMessageDelay, 70));
  finishes(2, body(ok, ok, 70us), with(Kind::kOperationDelay, 70));
  finishes(2, body(ok, ok, 70us), with(Kind::kRankPause, 70));
  finishes(2, body(ok, ok, 1s), with(Kind::kMessageStall));
  finishes(2, body(ok, ok, 1s), with(Kind::kOperationStall));
  finishes(2, body(remote, remote, 1s), with(Kind::kLinkReset));
  finishes(2, body(NcclResult::kSystemError, ok, 1s), with(Kind::kOperationError));
}

TEST(SimNccl, ACallErrorOfThePlanIsTheResultOfACallAndStays) {
  const RankBody body = [](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    EXPECT_EQ(sum(on, comm, data),
              on.rank() == 1 ? NcclResult::kInternalError : NcclResult::kSuccess);
    NcclResult state = NcclResult::kSuccess;
    on.api().comm_get_async_error(comm, &state);
    EXPECT_EQ(state, on.rank() == 1 ? NcclResult::kInternalError : NcclResult::kSuccess);
    on.meet();
    abort(on, comm);
    on.finish();
  };
  finishes(2, body, [](NcclRun& run) {
    faults::Fault one;
    one.kind = faults::Kind::kCallError;
    one.rank = 1;
    run.plan.faults = {one};
  });
}

TEST(SimNccl, AProcessThatExitsIsARemoteErrorForOthers) {
  finishes(
      2,
      [](SimRank& on) {
        const NcclComm comm = on.connected();
        const Tensor data = ones(on);
        if (on.rank() == 1) {
          EXPECT_EQ(start(on, comm, data), NcclResult::kSystemError);
          EXPECT_EQ(start(on, comm, data), NcclResult::kSystemError);
        } else {
          start(on, comm, data);
          EXPECT_EQ(error_of(on, comm), NcclResult::kRemoteError);
        }
        abort(on, comm);
        on.finish();
      },
      [](NcclRun& run) {
        faults::Fault exit;
        exit.kind = faults::Kind::kRankExit;
        exit.rank = 1;
        run.plan.faults = {exit};
      });
}

// Nobody checks: what comes is taken as far as it fits, and what does not come is waited for.
TEST(SimNccl, MismatchedOperationsHangOrGiveGarbageAndCrashNothing) {
  const simulation::MayLeak deadlocks;
  const Outcomes counts = outcomes(2, [](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    const std::size_t count = on.rank() == 0 ? 16 : 9;
    EXPECT_EQ(on.settled(comm, on.api().all_reduce(data.data(), data.data(), count, kNcclFloat,
                                                   kPlainSum, comm, on.native())),
              NcclResult::kSuccess);
    on.finish();
    on.destroy(comm);
  });
  EXPECT_EQ(counts.ends, kAllFinish);
  const Outcomes kinds = outcomes(2, [](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    const NcclResult result = on.rank() == 0 ? start(on, comm, data)
                                             : on.api().broadcast(data.data(), data.data(), 16,
                                                                  kNcclFloat, 1, comm, on.native());
    EXPECT_EQ(on.settled(comm, result), NcclResult::kSuccess);
  });
  EXPECT_EQ(kinds.ends, kAllHang);
}

// --- The end of communicators.

TEST(SimNccl, DestroyingWaitsForWorkThatNeverEnds) {
  const simulation::MayLeak deadlocks;
  for (const bool is_blocking : {true, false}) {
    const Outcomes all = outcomes(
        2,
        [is_blocking](SimRank& on) {
          NcclComm comm = nullptr;
          NcclConfig config = on.config(is_blocking ? 1 : 0);
          const NcclResult result =
              on.api().comm_init_rank_config(&comm, 2, on.shared_id(), on.rank(), &config);
          EXPECT_EQ(on.settled(comm, result), NcclResult::kSuccess);
          const Tensor data = ones(on);
          if (on.rank() == 1) return abort(on, comm);
          on.settled(comm, start(on, comm, data));
          on.api().comm_destroy(comm);
        },
        [](NcclRun& run) { run.options.peers_are_noticed = false; });
    EXPECT_EQ(all.ends, kAllHang);
    EXPECT_THAT(all.wait_graph, HasSubstr("communicator that is destroyed"));
  }
}

TEST(SimNccl, DestroyingAFailedOneIsNotedAndLeavesTheThreadInsideOfAGroup) {
  const Outcomes all = outcomes(2, [](SimRank& on) {
    const NcclComm comm = on.connected();
    const NcclComm healthy = on.connected();
    const Tensor data = ones(on);
    if (on.rank() == 1) {
      abort(on, comm);
    } else {
      start(on, comm, data);
      EXPECT_EQ(error_of(on, comm), NcclResult::kRemoteError);
      EXPECT_EQ(on.api().comm_destroy(comm), NcclResult::kRemoteError);
      abort(on, comm);
      EXPECT_EQ(start(on, healthy, data), NcclResult::kSuccess);  // and begins nothing
      on.finish();
    }
    on.meet();
    abort(on, healthy);
  });
  EXPECT_EQ(all.ends, kAllFinish) << all.wait_graph;
  EXPECT_EQ(all.findings, "");
  EXPECT_THAT(all.misused, ElementsAre(ContainsRegex("ncclCommDestroy.*, which has failed")));
}

// Who is done with an operation may have sent what the other side has not taken.
TEST(SimNccl, WhatAnAbortedOneHasSentIsLostUnlessItWasFinalized) {
  for (const bool finalizes : {false, true}) {
    finishes(
        2,
        [finalizes](SimRank& on) {
          const NcclComm comm = on.connected();
          const Tensor data = on.made(std::vector<float>(4, static_cast<float>(on.rank())));
          if (on.rank() == 1) {
            on.settled(comm, on.api().send(data.data(), 4, kNcclFloat, 0, comm, on.native()));
            on.finish();
            if (finalizes) on.settled(comm, on.api().comm_finalize(comm));
            return abort(on, comm);
          }
          on.settled(comm, on.api().receive(data.data(), 4, kNcclFloat, 1, comm, on.native()));
          if (finalizes) {
            EXPECT_EQ(on.values(data), std::vector<float>(4, 1));
          } else {
            EXPECT_EQ(error_of(on, comm), NcclResult::kRemoteError);
          }
          abort(on, comm);
        },
        [](NcclRun& run) {
          run.options.buffered_bytes = 64;
          run.options.aborts_lose = true;
          run.latency = {500us, 0us};
        });
  }
}

TEST(SimNccl, FinalizingWaitsForWorkAndTakesNoMore) {
  finishes(2, [](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    EXPECT_EQ(sum(on, comm, data), NcclResult::kSuccess);
    EXPECT_EQ(on.settled(comm, on.api().comm_finalize(comm)), NcclResult::kSuccess);
    EXPECT_EQ(on.values(data), std::vector<float>(16, 2));
    EXPECT_EQ(start(on, comm, data), NcclResult::kInvalidUsage);
    on.destroy(comm);
  });
}

// NCCL's proxy drops what it has not sent, though the operation has ended on its stream.
TEST(SimNccl, AShrinkWithTheFlagToAbortLosesWhatItsParentHasSent) {
  for (const int flags : {kNcclShrinkDefault, kNcclShrinkAbort}) {
    finishes(
        3,
        [flags](SimRank& on) {
          const NcclComm comm = on.connected();
          const Tensor data = on.made(std::vector<float>(4, static_cast<float>(on.rank())));
          if (on.rank() == 0) {
            on.settled(comm, on.api().receive(data.data(), 4, kNcclFloat, 1, comm, on.native()));
            if (flags == kNcclShrinkDefault) {
              on.finish();
              EXPECT_EQ(on.values(data), std::vector<float>(4, 1));
            } else {
              EXPECT_EQ(error_of(on, comm), NcclResult::kRemoteError);  // at the sender's end
            }
            return abort(on, comm);
          }
          if (on.rank() == 1) {
            on.settled(comm, on.api().send(data.data(), 4, kNcclFloat, 0, comm, on.native()));
            on.finish();
          }
          int gone = 0;
          NcclComm child = nullptr;
          EXPECT_EQ(on.api().comm_shrink(comm, &gone, 1, &child, nullptr, flags),
                    NcclResult::kSuccess);
          EXPECT_EQ(on.settled(comm), NcclResult::kSuccess);
          const Tensor sums = ones(on);
          EXPECT_EQ(sum(on, child, sums), NcclResult::kSuccess);
          on.finish();
          EXPECT_EQ(on.values(sums), std::vector<float>(16, 2));
          for (const NcclComm each : {comm, child}) {
            EXPECT_EQ(on.settled(each, on.api().comm_finalize(each)), NcclResult::kSuccess);
            on.destroy(each);
          }
        },
        [](NcclRun& run) {
          run.options.buffered_bytes = 64;
          run.options.aborts_lose = true;
          run.latency = {500us, 0us};
        });
  }
}

// As in the sources of NCCL 2.28.9: the error of a link outlives revocation and abort flags.
TEST(SimNccl, ACommunicatorWithABrokenLinkCannotShrink) {
  finishes(3, [](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    if (on.rank() == 1) abort(on, comm);
    on.meet();
    if (on.rank() == 1) return;
    start(on, comm, data);
    EXPECT_EQ(error_of(on, comm), NcclResult::kRemoteError);
    NcclComm child = nullptr;
    int gone = 1;
    EXPECT_EQ(on.api().comm_shrink(comm, &gone, 1, &child, nullptr, kNcclShrinkAbort),
              NcclResult::kRemoteError);
    EXPECT_EQ(child, nullptr);
    on.meet_without(1);
    abort(on, comm);
    on.finish();
  });
}

TEST(SimNccl, RanksThatShrinkDifferentlyNeverMeet) {
  finishes(3, [](SimRank& on) {
    const NcclComm comm = on.connected();
    NcclComm child = nullptr;
    int gone = on.rank() == 0 ? 2 : 0;
    EXPECT_EQ(on.api().comm_shrink(comm, &gone, 1, &child, nullptr, kNcclShrinkDefault),
              NcclResult::kSuccess);
    if (on.rank() == 0) {
      for (int i = 0; i < 10; ++i) on.pause();
      NcclResult state = NcclResult::kSuccess;
      on.api().comm_get_async_error(comm, &state);
      EXPECT_EQ(state, NcclResult::kInProgress);
    } else {
      EXPECT_EQ(on.settled(comm), NcclResult::kSuccess);
      abort(on, child);
    }
    on.meet();
    EXPECT_EQ(on.rank() == 0, child == nullptr);
    abort(on, comm);
    if (on.rank() == 0) abort(on, child);
  });
}

TEST(SimNccl, ASplitAndAShrinkSucceedBeforeTheirChildIsThere) {
  for (const bool is_split : {true, false}) {
    finishes(
        2,
        [is_split](SimRank& on) {
          const NcclComm comm = on.connected();
          if (on.rank() == 1) return on.api().comm_abort(comm), void();
          int gone = 1;
          NcclComm child = nullptr;
          EXPECT_EQ(is_split ? on.api().comm_split(comm, 0, 0, &child, nullptr)
                             : on.api().comm_shrink(comm, &gone, 1, &child, nullptr, 0),
                    NcclResult::kSuccess);
          EXPECT_EQ(child, nullptr);
          int count = 0;
          if (is_split) {  // the other rank never comes
            EXPECT_EQ(on.api().comm_count(comm, &count), NcclResult::kInvalidArgument);
          } else {
            EXPECT_EQ(on.settled(comm), NcclResult::kSuccess);
          }
          abort(on, comm);
          EXPECT_NE(child, nullptr);
          abort(on, child);
        },
        [](NcclRun& run) { run.options.init_time = 50us; });
  }
}

// As in the sources of NCCL 2.28.9 (ncclCommInitRankFunc): the pointer is written in any case, and
// nothing of the failure is in what it points to.
TEST(SimNccl, AChildThatCouldNotBeMadeIsHandedOutAndSaysNothing) {
  const auto program = [](bool asks) {
    return outcomes(
        1,
        [asks](SimRank& on) {
          const NcclComm comm = on.connected();
          NcclComm child = nullptr;
          EXPECT_EQ(on.api().comm_split(comm, 0, 0, &child, nullptr), NcclResult::kSuccess);
          EXPECT_EQ(on.settled(comm), NcclResult::kSystemError);
          ASSERT_NE(child, nullptr);
          if (asks) {
            EXPECT_EQ(on.settled(child), NcclResult::kSuccess);
          }
          abort(on, comm);
          if (!asks) abort(on, child);
        },
        [](NcclRun& run) {
          run.options.faults = {
              fault(SimNcclFault::Kind::kAsyncError, "ncclCommSplit", 1, NcclResult::kSystemError)};
        });
  };
  const Outcomes right = program(false);
  EXPECT_EQ(right.misuses, 0U);
  EXPECT_EQ(right.left_open, 0U);
  const Outcomes wrong = program(true);
  EXPECT_THAT(wrong.misused, ElementsAre(HasSubstr(", which was not made")));
  EXPECT_EQ(wrong.left_open, static_cast<unsigned>(wrong.runs));
}

// As getParentRanks() of NCCL 2.28.9 has it.
TEST(SimNccl, AShrinkCountsARankThatIsNamedTwiceAsTwo) {
  finishes(4, [](SimRank& on) {
    const NcclComm comm = on.connected();
    NcclComm child = nullptr;
    int gone[] = {1, 1};
    if (on.rank() != 1) {
      EXPECT_EQ(on.api().comm_shrink(comm, gone, 2, &child, nullptr, 0), NcclResult::kSuccess);
      const NcclResult state = on.settled(comm);
      EXPECT_EQ(state, on.rank() == 3 ? NcclResult::kInvalidArgument : NcclResult::kSuccess);
      int count = 2;
      if (on.rank() != 3) {
        EXPECT_EQ(on.api().comm_count(child, &count), NcclResult::kSuccess);
      }
      EXPECT_EQ(count, 2);
    }
    on.meet();
    abort(on, comm);
    if (child != nullptr) abort(on, child);
  });
}

// --- Wrong use.

TEST(SimNccl, UseAfterTheEndIsNotedAndDoesNothing) {
  const auto misused = [](const RankBody& body) {
    const Outcomes all = outcomes(1, body);
    EXPECT_EQ(all.ends, kAllFinish);
    EXPECT_EQ(all.left_open, 0U);
    return all.misused;
  };
  EXPECT_THAT(misused([](SimRank& on) {
                const NcclComm comm = on.connected();
                const Tensor data = ones(on);
                abort(on, comm);
                NcclResult state = NcclResult::kSuccess;
                for (int i = 0; i < 3; ++i)
                  EXPECT_EQ(start(on, comm, data), NcclResult::kInvalidArgument);
                EXPECT_EQ(on.api().comm_get_async_error(comm, &state),
                          NcclResult::kInvalidArgument);
                on.finish();
                EXPECT_EQ(on.values(data), std::vector<float>(16, 1));
              }),
              ElementsAre(ContainsRegex("ncclAllReduce.*, which was aborted before"),
                          ContainsRegex("ncclCommGetAsyncError.*, which was aborted before")));
  EXPECT_THAT(misused([](SimRank& on) {
                const NcclComm comm = on.connected();
                on.destroy(comm);
                EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kInvalidArgument);
              }),
              ElementsAre(ContainsRegex("ncclCommAbort.*, which was destroyed before")));
  EXPECT_THAT(misused([](SimRank& on) {
                const NcclComm comm = on.connected();
                abort(on, comm);
                EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kInvalidArgument);
                EXPECT_EQ(on.api().comm_destroy(comm), NcclResult::kInvalidArgument);
              }),
              ElementsAre(ContainsRegex("ncclCommAbort.*, which was aborted before"),
                          ContainsRegex("ncclCommDestroy.*, which was aborted before")));
}

TEST(SimNccl, ACallOfAGroupForWhatIsGoneFailsTheGroup) {
  const Outcomes all = outcomes(1, [](SimRank& on) {
    const NcclComm gone = on.connected();
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    abort(on, gone);
    EXPECT_EQ(on.api().group_start(), NcclResult::kSuccess);
    EXPECT_EQ(start(on, gone, data), NcclResult::kInvalidArgument);
    EXPECT_EQ(start(on, comm, data), NcclResult::kSuccess);
    EXPECT_EQ(on.api().group_end(), NcclResult::kInvalidArgument);
    abort(on, comm);
  });
  EXPECT_EQ(all.misused.size(), 1U);
}

TEST(SimNccl, DestroyingOneWhoseLastCallGoesOnIsNoted) {
  const Outcomes all = outcomes(
      2,
      [](SimRank& on) {
        const NcclComm comm = on.connected();
        const Tensor data = ones(on);
        EXPECT_EQ(start(on, comm, data), NcclResult::kInProgress);
        EXPECT_EQ(on.api().comm_destroy(comm), NcclResult::kInvalidArgument);
        EXPECT_EQ(on.settled(comm), NcclResult::kSuccess);
        on.meet();
        abort(on, comm);
      },
      [](NcclRun& run) { run.options.launch_time = 50us; });
  EXPECT_EQ(all.misuses, 2U * static_cast<unsigned>(all.runs));
  EXPECT_THAT(all.misused,
              Each(ContainsRegex("ncclCommDestroy.* while what was called last goes on")));
}

// As in the sources of NCCL 2.28.9: comm->groupJob is freed, and used when the state is asked for.
TEST(SimNccl, RevokingOneWhoseLastCallGoesOnIsNoted) {
  const auto program = [](bool waits) {
    return outcomes(
        2,
        [waits](SimRank& on) {
          const NcclComm comm = on.connected();
          const Tensor data = ones(on);
          const NcclResult result = start(on, comm, data);
          EXPECT_EQ(result, NcclResult::kInProgress);
          if (waits) {
            EXPECT_EQ(on.settled(comm, result), NcclResult::kSuccess);
          }
          EXPECT_EQ(on.settled(comm, on.api().comm_revoke(comm, kNcclRevokeDefault)),
                    NcclResult::kSuccess);
          on.meet();
          abort(on, comm);
        },
        [](NcclRun& run) { run.options.launch_time = 50us; });
  };
  EXPECT_EQ(program(true).misuses, 0U);
  const Outcomes early = program(false);
  EXPECT_EQ(early.misuses, 2U * static_cast<unsigned>(early.runs));
  EXPECT_THAT(early.misused, Each(ContainsRegex("ncclCommRevoke.* was seen to succeed")));
}

TEST(SimNccl, TwoThreadsThatAbortOneCommunicatorAreNoted) {
  const Outcomes all = outcomes(1, [](SimRank& on) {
    const NcclComm comm = on.connected();
    platform::Thread watchdog("watchdog", [&] { on.api().comm_abort(comm); });
    on.api().comm_abort(comm);
    watchdog.join();
  });
  EXPECT_EQ(all.ends, kAllFinish);
  EXPECT_EQ(all.misuses, static_cast<unsigned>(all.runs));
  EXPECT_THAT(all.misused, Each(HasSubstr("ncclCommAbort")));
}

TEST(SimNccl, TwoThreadsInCallsForOneCommunicatorAreNoted) {
  const Outcomes all = outcomes(2, [](SimRank& on) {
    const NcclComm comm = on.connected();
    const Tensor data = ones(on);
    platform::Thread watchdog("watchdog", [&] {
      NcclResult state = NcclResult::kSuccess;
      on.api().comm_get_async_error(comm, &state);
    });
    NcclConfig config = on.config(1);
    NcclComm child = nullptr;
    EXPECT_EQ(on.api().comm_split(comm, 0, 0, &child, &config), NcclResult::kSuccess);
    on.settled(comm);
    watchdog.join();
    on.meet();
    abort(on, comm);
    abort(on, child);
  });
  EXPECT_GT(all.misuses, 0U);
}

TEST(SimNccl, ACommunicatorThatIsLeftOpenIsCounted) {
  EXPECT_EQ(outcomes(1, [](SimRank& on) { on.connected(); }).left_open, many_schedules(15).size());
}

TEST(SimNccl, FunctionsOfLaterVersionsAreNotThere) {
  const auto api_of = [](int version) {
    NcclRun run(1);
    run.options.version = version;
    run.run([](SimRank&) {});
    return run.api;
  };
  const NcclApi oldest = api_of(21402);
  EXPECT_EQ(oldest.comm_finalize, nullptr);
  EXPECT_EQ(oldest.comm_split, nullptr);
  EXPECT_THAT(oldest.lacking("ncclCommShrink").to_string(), HasSubstr("use 2.27.3"));
  EXPECT_NE(api_of(21801).comm_split, nullptr);
  EXPECT_EQ(api_of(22702).comm_shrink, nullptr);
  EXPECT_NE(api_of(22703).comm_shrink, nullptr);
  EXPECT_EQ(api_of(22703).comm_revoke, nullptr);
  EXPECT_NE(api_of(22809).comm_revoke, nullptr);
  int version = 0;  // the run is over
  EXPECT_EQ(oldest.get_version(&version), NcclResult::kInvalidArgument);
  EXPECT_EQ(oldest.group_start(), NcclResult::kInvalidUsage);
}

}  // namespace
}  // namespace lockstep::simulated
