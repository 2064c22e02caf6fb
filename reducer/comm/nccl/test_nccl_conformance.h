// What NCCL promises and the reducer relies on, as tests that each NCCL instantiates in a file of
// its own: the simulated one, and a real one where there is a GPU. Where they differ, the
// simulated one is wrong. A fixture type runs a body once for each rank, as processes or as what
// stands for them:
//
//   struct Fixture {
//     static void run(int ranks, const std::function<void(NcclUnderTest&)>& body);  // may skip
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Name, NcclConformance, Fixture);
//
// The programs are right ones, on non-blocking communicators, but for the last ones, which say
// what a wrong call gives.
#pragma once

#include <gtest/gtest.h>

#include <climits>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "reducer/comm/nccl/nccl_api.h"
#include "reducer/comm/store.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// One rank.
class NcclUnderTest {
 public:
  virtual ~NcclUnderTest() = default;
  virtual const NcclApi& api() = 0;
  virtual int rank() = 0;
  virtual int ranks() = 0;
  virtual Device& device() = 0;
  // One that rank 0 made, and all get; another one at each call.
  virtual NcclUniqueId shared_id() = 0;
  // Returns when all ranks have called it.
  virtual void meet() = 0;
  // Lets the others go on for a moment.
  virtual void pause() = 0;
  // Ends a rank that is a process, whatever goes on in it.
  virtual void end_here() {}
  // One for all ranks.
  virtual std::shared_ptr<Store> store() = 0;
  // What no right program needs, and what a wrong one is given.
  virtual platform::Duration long_time() = 0;
  virtual platform::Duration short_time() = 0;

  Stream stream() { return device().current_stream(); }
  CudaStreamHandle native() { return device().native(stream()); }
  Tensor made(std::size_t elements) {
    return *Tensor::empty(device(), DType::kFloat32,
                          Shape::row_major({static_cast<std::int64_t>(elements)}));
  }
  Tensor made(const std::vector<float>& values) {
    const Tensor tensor = made(values.size());
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    EXPECT_TRUE(write(device(), bytes, tensor.data(), deadline()).ok());
    return tensor;
  }
  std::vector<float> values(const Tensor& tensor) {
    std::vector<float> all(static_cast<std::size_t>(tensor.elements()));
    EXPECT_TRUE(
        read(device(), tensor.data(), std::as_writable_bytes(std::span(all)), deadline()).ok());
    return all;
  }
  static platform::Deadline deadline() { return platform::Deadline::in(std::chrono::seconds(60)); }

  // The state of a communicator when it is in progress no more.
  NcclResult settled(NcclComm comm) {
    NcclResult state = NcclResult::kInProgress;
    while (true) {
      EXPECT_EQ(api().comm_get_async_error(comm, &state), NcclResult::kSuccess);
      if (state != NcclResult::kInProgress) return state;
      pause();
    }
  }
  // What a call on this communicator came to. From 2.23 until before 2.26.2 a collective says that
  // it has succeeded while it goes on.
  NcclResult settled(NcclComm comm, NcclResult result) {
    const bool is_early = result == NcclResult::kSuccess && comm != nullptr &&
                          api().version >= 22300 && api().version < 22602;
    return result == NcclResult::kInProgress || is_early ? settled(comm) : result;
  }
  // With 2.23.4 an abort does not return while a collective is in flight: a defect of that NCCL
  // (faults/played_gpu/FINDINGS.md).
  bool abort_hangs() { return api().version >= 22300 && api().version < 22602; }
  NcclConfig config(int blocking = 0) {
    NcclConfig config = make_nccl_config(api().version);
    config.blocking = blocking;
    return config;
  }
  NcclComm connected() {
    NcclComm comm = nullptr;
    NcclConfig non_blocking = config();
    const NcclResult result =
        api().comm_init_rank_config(&comm, ranks(), shared_id(), rank(), &non_blocking);
    EXPECT_EQ(settled(comm, result), NcclResult::kSuccess);
    return comm;
  }
  void finish() { EXPECT_TRUE(device().synchronize(device().record(stream()), deadline()).ok()); }
  void destroy(NcclComm comm) { EXPECT_EQ(api().comm_destroy(comm), NcclResult::kSuccess); }
  // A communicator that is destroyed without being finalized, and whose process ends, may lose what
  // it has sent: 2.22.3 does.
  void finalize_and_destroy(NcclComm comm) {
    if (api().comm_finalize != nullptr) {
      EXPECT_EQ(settled(comm, api().comm_finalize(comm)), NcclResult::kSuccess);
    }
    destroy(comm);
  }
};

template <class Fixture>
class NcclConformance : public ::testing::Test {};
TYPED_TEST_SUITE_P(NcclConformance);

constexpr NcclDataType kNcclFloat = NcclDataType::kFloat32;

// Of a call that makes a child: NCCL may say that it has succeeded while it goes on. The place for
// the child is NCCL's until the parent is in progress no more.
inline void expect_accepted(NcclResult result) {
  EXPECT_TRUE(result == NcclResult::kSuccess || result == NcclResult::kInProgress)
      << static_cast<int>(result);
}

TYPED_TEST_P(NcclConformance, ACommunicatorKnowsItself) {
  TypeParam::run(3, [](NcclUnderTest& on) {
    const NcclComm comm = on.connected();
    int value = kNone;
    EXPECT_EQ(on.api().comm_count(comm, &value), NcclResult::kSuccess);
    EXPECT_EQ(value, 3);
    EXPECT_EQ(on.api().comm_user_rank(comm, &value), NcclResult::kSuccess);
    EXPECT_EQ(value, on.rank());
    on.finalize_and_destroy(comm);
  });
}

TYPED_TEST_P(NcclConformance, AnAllReduceSumsInPlaceAndOutOfPlace) {
  TypeParam::run(3, [](NcclUnderTest& on) {
    const NcclComm comm = on.connected();
    const Tensor in = on.made(std::vector<float>(1000, static_cast<float>(on.rank() + 1)));
    const Tensor out = on.made(1000);
    for (const Tensor* to : {&out, &in}) {
      EXPECT_EQ(on.settled(comm, on.api().all_reduce(in.data(), to->data(), 1000, kNcclFloat,
                                                     NcclRedOp::kSum, comm, on.native())),
                NcclResult::kSuccess);
      EXPECT_EQ(on.values(*to), std::vector<float>(1000, 6));
    }
    on.finalize_and_destroy(comm);
  });
}

TYPED_TEST_P(NcclConformance, ABroadcastComesFromItsRoot) {
  TypeParam::run(3, [](NcclUnderTest& on) {
    const NcclComm comm = on.connected();
    const Tensor data = on.made(std::vector<float>(77, static_cast<float>(on.rank())));
    EXPECT_EQ(on.settled(comm, on.api().broadcast(data.data(), data.data(), 77, kNcclFloat, 2, comm,
                                                  on.native())),
              NcclResult::kSuccess);
    EXPECT_EQ(on.values(data), std::vector<float>(77, 2));
    on.finalize_and_destroy(comm);
  });
}

TYPED_TEST_P(NcclConformance, GatheringAndScatteringGoByRank) {
  TypeParam::run(2, [](NcclUnderTest& on) {
    const NcclComm comm = on.connected();
    const float mine = static_cast<float>(on.rank());
    const Tensor one = on.made({mine + 1, mine + 10});
    const Tensor all = on.made(4);
    EXPECT_EQ(on.settled(comm, on.api().all_gather(one.data(), all.data(), 2, kNcclFloat, comm,
                                                   on.native())),
              NcclResult::kSuccess);
    EXPECT_EQ(on.values(all), (std::vector<float>{1, 10, 2, 11}));
    EXPECT_EQ(on.settled(comm, on.api().reduce_scatter(all.data(), one.data(), 2, kNcclFloat,
                                                       NcclRedOp::kSum, comm, on.native())),
              NcclResult::kSuccess);
    EXPECT_EQ(on.values(one),
              on.rank() == 0 ? (std::vector<float>{2, 20}) : (std::vector<float>{4, 22}));
    on.finalize_and_destroy(comm);
  });
}

// Each rank to each, itself included.
TYPED_TEST_P(NcclConformance, AGroupOfSendsAndReceivesGoesTogether) {
  TypeParam::run(3, [](NcclUnderTest& on) {
    const NcclComm comm = on.connected();
    const float mine = static_cast<float>(10 * on.rank());
    const Tensor out = on.made({mine, mine + 1, mine + 2});
    const Tensor in = on.made(3);
    EXPECT_EQ(on.api().group_start(), NcclResult::kSuccess);
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(on.api().send(out.data() + std::ptrdiff_t{4} * peer, 1, kNcclFloat, peer, comm,
                              on.native()),
                NcclResult::kSuccess);
      EXPECT_EQ(on.api().receive(in.data() + std::ptrdiff_t{4} * peer, 1, kNcclFloat, peer, comm,
                                 on.native()),
                NcclResult::kSuccess);
    }
    EXPECT_EQ(on.settled(comm, on.api().group_end()), NcclResult::kSuccess);
    const float from = static_cast<float>(on.rank());
    EXPECT_EQ(on.values(in), (std::vector<float>{from, from + 10, from + 20}));
    on.finalize_and_destroy(comm);
  });
}

TYPED_TEST_P(NcclConformance, OperationsOfOneStreamKeepTheirOrder) {
  TypeParam::run(2, [](NcclUnderTest& on) {
    const NcclComm comm = on.connected();
    const Tensor data = on.made(std::vector<float>(100, 1));
    for (int i = 0; i < 8; ++i)
      EXPECT_EQ(on.settled(comm, on.api().all_reduce(data.data(), data.data(), 100, kNcclFloat,
                                                     NcclRedOp::kSum, comm, on.native())),
                NcclResult::kSuccess);
    EXPECT_EQ(on.values(data), std::vector<float>(100, 256));
    on.finalize_and_destroy(comm);
  });
}

TYPED_TEST_P(NcclConformance, AnOperationOfNothingIsOneAtOnce) {
  TypeParam::run(2, [](NcclUnderTest& on) {
    const NcclComm comm = on.connected();
    EXPECT_EQ(
        on.api().all_reduce(nullptr, nullptr, 0, kNcclFloat, NcclRedOp::kSum, comm, on.native()),
        NcclResult::kSuccess);
    on.finalize_and_destroy(comm);
  });
}

TYPED_TEST_P(NcclConformance, AnAbortEndsWhatOthersNeverJoin) {
  TypeParam::run(2, [](NcclUnderTest& on) {
    if (on.abort_hangs()) GTEST_SKIP() << "the abort of this NCCL hangs";
    const NcclComm comm = on.connected();
    const Tensor data = on.made(std::vector<float>(10, 1));
    if (on.rank() == 0) {
      EXPECT_EQ(on.settled(comm, on.api().all_reduce(data.data(), data.data(), 10, kNcclFloat,
                                                     NcclRedOp::kSum, comm, on.native())),
                NcclResult::kSuccess);
    }
    on.meet();
    EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kSuccess);
    on.finish();
  });
}

TYPED_TEST_P(NcclConformance, AnAbortEndsAnInitializationThatOthersNeverJoin) {
  TypeParam::run(2, [](NcclUnderTest& on) {
    const NcclUniqueId id = on.shared_id();
    if (on.rank() == 1) return;
    NcclComm comm = nullptr;
    NcclConfig config = on.config();
    EXPECT_EQ(on.api().comm_init_rank_config(&comm, 2, id, 0, &config), NcclResult::kInProgress);
    for (int i = 0; i < 5; ++i) on.pause();
    NcclResult state = NcclResult::kSuccess;
    EXPECT_EQ(on.api().comm_get_async_error(comm, &state), NcclResult::kSuccess);
    EXPECT_EQ(state, NcclResult::kInProgress);
    EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kSuccess);
  });
}

TYPED_TEST_P(NcclConformance, ACallOnACommunicatorInProgressIsAnInvalidArgument) {
  TypeParam::run(2, [](NcclUnderTest& on) {
    const NcclUniqueId id = on.shared_id();
    if (on.rank() == 1) return;
    NcclComm comm = nullptr;
    NcclConfig config = on.config();
    EXPECT_EQ(on.api().comm_init_rank_config(&comm, 2, id, 0, &config), NcclResult::kInProgress);
    int count = 0;
    EXPECT_EQ(on.api().comm_count(comm, &count), NcclResult::kInvalidArgument);
    EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kSuccess);
  });
}

// An error of a call stays with a non-blocking communicator.
TYPED_TEST_P(NcclConformance, AWrongRootIsAnInvalidArgumentThatStays) {
  TypeParam::run(1, [](NcclUnderTest& on) {
    const NcclComm comm = on.connected();
    const Tensor data = on.made(std::vector<float>(10, 1));
    EXPECT_EQ(on.api().broadcast(data.data(), data.data(), 10, kNcclFloat, 7, comm, on.native()),
              NcclResult::kInvalidArgument);
    EXPECT_EQ(on.settled(comm), NcclResult::kInvalidArgument);
    EXPECT_NE(std::string(on.api().get_last_error(comm)), "");
    EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kSuccess);
  });
}

TYPED_TEST_P(NcclConformance, AGroupThatWasNotStartedCannotEnd) {
  TypeParam::run(
      1, [](NcclUnderTest& on) { EXPECT_EQ(on.api().group_end(), NcclResult::kInvalidUsage); });
}

TYPED_TEST_P(NcclConformance, ASplitGivesACommunicatorToEachColor) {
  TypeParam::run(3, [](NcclUnderTest& on) {
    if (on.api().comm_split == nullptr) GTEST_SKIP() << "this NCCL has no ncclCommSplit";
    const NcclComm comm = on.connected();
    NcclComm child = nullptr;
    NcclConfig config = on.config();
    const int color = on.rank() == 1 ? kNcclNoColor : 5;
    expect_accepted(on.api().comm_split(comm, color, -on.rank(), &child, &config));
    EXPECT_EQ(on.settled(comm), NcclResult::kSuccess);
    EXPECT_EQ(child == nullptr, on.rank() == 1);
    if (child != nullptr) {
      EXPECT_EQ(on.settled(child), NcclResult::kSuccess);
      int rank = kNone;
      EXPECT_EQ(on.api().comm_user_rank(child, &rank), NcclResult::kSuccess);
      EXPECT_EQ(rank, on.rank() == 2 ? 0 : 1);  // by key
      const Tensor data = on.made(std::vector<float>(10, static_cast<float>(on.rank())));
      EXPECT_EQ(on.settled(child, on.api().all_reduce(data.data(), data.data(), 10, kNcclFloat,
                                                      NcclRedOp::kSum, child, on.native())),
                NcclResult::kSuccess);
      EXPECT_EQ(on.values(data), std::vector<float>(10, 2));
      on.finalize_and_destroy(child);
    }
    on.finalize_and_destroy(comm);
  });
}

// Of a parent on which nothing is in flight, with the flag to abort and without it.
TYPED_TEST_P(NcclConformance, AShrinkLeavesRanksOut) {
  for (const int flags : {kNcclShrinkDefault, kNcclShrinkAbort}) {
    TypeParam::run(3, [flags](NcclUnderTest& on) {
      if (on.api().comm_shrink == nullptr) GTEST_SKIP() << "this NCCL has no ncclCommShrink";
      const NcclComm comm = on.connected();
      const Tensor data = on.made(std::vector<float>(10, static_cast<float>(on.rank() + 1)));
      if (on.rank() == 1) {  // never joins
        on.meet();
        EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kSuccess);
        return;
      }
      int gone = 1;
      NcclComm child = nullptr;
      NcclConfig config = on.config();
      expect_accepted(on.api().comm_shrink(comm, &gone, 1, &child, &config, flags));
      EXPECT_EQ(on.settled(comm), NcclResult::kSuccess);
      ASSERT_NE(child, nullptr);
      EXPECT_EQ(on.settled(child), NcclResult::kSuccess);
      EXPECT_EQ(on.settled(child, on.api().all_reduce(data.data(), data.data(), 10, kNcclFloat,
                                                      NcclRedOp::kSum, child, on.native())),
                NcclResult::kSuccess);
      EXPECT_EQ(on.values(data), std::vector<float>(10, 4));
      on.finalize_and_destroy(child);
      on.meet();
      EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kSuccess);
    });
  }
}

TYPED_TEST_P(NcclConformance, AShrinkByNobodyIsAnInvalidArgument) {
  TypeParam::run(1, [](NcclUnderTest& on) {
    if (on.api().comm_shrink == nullptr) GTEST_SKIP() << "this NCCL has no ncclCommShrink";
    const NcclComm comm = on.connected();
    int none = 0;
    NcclComm child = nullptr;
    NcclConfig config = on.config();
    EXPECT_EQ(on.api().comm_shrink(comm, &none, 0, &child, &config, kNcclShrinkDefault),
              NcclResult::kInvalidArgument);
    EXPECT_EQ(child, nullptr);
    EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kSuccess);
  });
}

TYPED_TEST_P(NcclConformance, ARevokedCommunicatorTakesNoMoreWork) {
  TypeParam::run(2, [](NcclUnderTest& on) {
    if (on.api().comm_revoke == nullptr) GTEST_SKIP() << "this NCCL has no ncclCommRevoke";
    const NcclComm comm = on.connected();
    const Tensor data = on.made(std::vector<float>(10, 1));
    if (on.rank() == 0) {
      EXPECT_EQ(on.settled(comm, on.api().all_reduce(data.data(), data.data(), 10, kNcclFloat,
                                                     NcclRedOp::kSum, comm, on.native())),
                NcclResult::kSuccess);
    }
    EXPECT_EQ(on.settled(comm, on.api().comm_revoke(comm, kNcclRevokeDefault)),
              NcclResult::kSuccess);
    on.finish();
    EXPECT_EQ(on.api().all_reduce(data.data(), data.data(), 10, kNcclFloat, NcclRedOp::kSum, comm,
                                  on.native()),
              NcclResult::kInvalidUsage);
    on.meet();
    EXPECT_EQ(on.api().comm_abort(comm), NcclResult::kSuccess);
  });
}

REGISTER_TYPED_TEST_SUITE_P(NcclConformance, ACommunicatorKnowsItself,
                            AnAllReduceSumsInPlaceAndOutOfPlace, ABroadcastComesFromItsRoot,
                            GatheringAndScatteringGoByRank, AGroupOfSendsAndReceivesGoesTogether,
                            OperationsOfOneStreamKeepTheirOrder, AnOperationOfNothingIsOneAtOnce,
                            AnAbortEndsWhatOthersNeverJoin,
                            AnAbortEndsAnInitializationThatOthersNeverJoin,
                            ACallOnACommunicatorInProgressIsAnInvalidArgument,
                            AWrongRootIsAnInvalidArgumentThatStays,
                            AGroupThatWasNotStartedCannotEnd, ASplitGivesACommunicatorToEachColor,
                            AShrinkLeavesRanksOut, AShrinkByNobodyIsAnInvalidArgument,
                            ARevokedCommunicatorTakesNoMoreWork);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
