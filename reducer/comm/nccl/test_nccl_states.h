// What each call of NCCL returns in each state of a communicator, as one table that a real NCCL and
// the simulated one are both held against. The values are those of NCCL 2.28.9 on a played GPU;
// answers_of() has what versions do otherwise. Fixtures are those of NcclConformance.
//
//   state    how the communicator came there; but for the last state, on one rank alone
//   call     what is called
//   result   what the call returns
//   after    what ncclCommGetAsyncError says afterwards, when nothing is in progress any more; of a
//            communicator that never settles, kInProgress
//
// What a right program never does, and NCCL answers with a crash or a hang, has no row: calls on a
// communicator that was aborted or destroyed, and on memory that is none.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "reducer/comm/nccl/test_nccl_conformance.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

enum class NcclState {
  kReady,       // all ranks have joined
  kInProgress,  // a rank has not joined
  kFailed,      // after a broadcast with a wrong root
  kRevoked,     // by ncclCommRevoke
  kOfTwo,       // ready, and the other rank calls nothing
};

inline const char* name_of(NcclState state) {
  switch (state) {
    case NcclState::kReady:
      return "ready";
    case NcclState::kInProgress:
      return "in progress";
    case NcclState::kFailed:
      return "failed";
    case NcclState::kRevoked:
      return "revoked";
    case NcclState::kOfTwo:
      return "ready and of two ranks";
  }
  return "?";
}

// What the calls of a row use.
struct NcclRow {
  NcclUnderTest& on;
  NcclComm comm = nullptr;
  std::byte* data = nullptr;  // of 16 floats

  const NcclApi& api() const { return on.api(); }
  NcclResult all_reduce(NcclDataType type, NcclRedOp op, std::size_t count = 4) const {
    return api().all_reduce(data, data, count, type, op, comm, on.native());
  }
};

struct NcclAnswer {
  NcclResult result = NcclResult::kSuccess;
  NcclResult after = NcclResult::kSuccess;
};

struct NcclCall {
  const char* name;
  // For each state, in the order of NcclState, the result and what the communicator says after it,
  // as the digits of ncclResult_t: 0 success, 4 invalid argument, 5 invalid usage, 7 in progress.
  const char* answers;
  NcclResult (*call)(NcclRow&);

  NcclAnswer in(NcclState state, int version) const {
    const std::string digits = answers_of(version).substr(3 * static_cast<std::size_t>(state), 2);
    return {static_cast<NcclResult>(digits[0] - '0'), static_cast<NcclResult>(digits[1] - '0')};
  }
  // NCCL before 2.27 begins a group of nothing, and does not forget a split that was
  // refused. 2.22.3 launches a collective within the call; 2.23.4 says so, and does it later.
  std::string answers_of(int version) const {
    const std::string which = name;
    std::string digits = answers;
    if (version >= 22700) return digits;
    if (which == "an empty group") return "00 77 04 00 00";
    if (which.starts_with("split")) return "00 44 44 00 07";
    const bool is_in_call =
        version < 22300 || (version < 22602 && which != "a group with an all-reduce");
    if (is_in_call && digits.ends_with("70") && !which.starts_with("revoke") && which != "finalize")
      digits.replace(digits.size() - 2, 2, "00");
    return digits;
  }
};

// Properties, and collectives.
inline std::vector<NcclCall> nccl_collective_calls() {
  return {
      {"count", "00 47 44 00 00",
       [](NcclRow& row) {
         int value = 0;
         return row.api().comm_count(row.comm, &value);
       }},
      {"device", "00 47 44 00 00",
       [](NcclRow& row) {
         int value = 0;
         return row.api().comm_cu_device(row.comm, &value);
       }},
      {"rank", "00 47 44 00 00",
       [](NcclRow& row) {
         int value = 0;
         return row.api().comm_user_rank(row.comm, &value);
       }},
      {"all-reduce", "00 44 44 50 70",
       [](NcclRow& row) { return row.all_reduce(kNcclFloat, NcclRedOp::kSum); }},
      {"all-reduce of nothing", "00 44 44 50 00",
       [](NcclRow& row) { return row.all_reduce(kNcclFloat, NcclRedOp::kSum, 0); }},
      {"all-reduce of a type that is none", "44 44 44 50 44",
       [](NcclRow& row) { return row.all_reduce(static_cast<NcclDataType>(99), NcclRedOp::kSum); }},
      {"all-reduce by an operation that is none", "44 44 44 50 44",
       [](NcclRow& row) { return row.all_reduce(kNcclFloat, static_cast<NcclRedOp>(77)); }},
      {"broadcast", "00 44 44 50 70",
       [](NcclRow& row) {
         return row.api().broadcast(row.data, row.data, 4, kNcclFloat, 0, row.comm,
                                    row.on.native());
       }},
      {"broadcast from a rank that is none", "44 44 44 50 44",
       [](NcclRow& row) {
         return row.api().broadcast(row.data, row.data, 4, kNcclFloat, 7, row.comm,
                                    row.on.native());
       }},
      {"all-gather", "00 44 44 50 70",
       [](NcclRow& row) {
         return row.api().all_gather(row.data, row.data, 4, kNcclFloat, row.comm, row.on.native());
       }},
      {"reduce-scatter", "00 44 44 50 70",
       [](NcclRow& row) {
         return row.api().reduce_scatter(row.data, row.data, 4, kNcclFloat, NcclRedOp::kSum,
                                         row.comm, row.on.native());
       }},
  };
}

// Sends, groups and factors.
inline std::vector<NcclCall> nccl_group_calls() {
  return {
      {"send to a rank that is none", "44 44 44 50 44",
       [](NcclRow& row) {
         return row.api().send(row.data, 4, kNcclFloat, 7, row.comm, row.on.native());
       }},
      {"receive from a rank that is none", "44 44 44 50 44",
       [](NcclRow& row) {
         return row.api().receive(row.data, 4, kNcclFloat, -1, row.comm, row.on.native());
       }},
      {"an empty group", "00 07 04 00 00",
       [](NcclRow& row) {
         (void)row.api().group_start();
         return row.api().group_end();
       }},
      {"a group with an all-reduce", "00 44 44 50 70",
       [](NcclRow& row) {
         (void)row.api().group_start();
         (void)row.all_reduce(kNcclFloat, NcclRedOp::kSum);
         return row.api().group_end();
       }},
      {"a group with an error in it", "44 44 44 50 44",
       [](NcclRow& row) {
         (void)row.api().group_start();
         (void)row.all_reduce(static_cast<NcclDataType>(99), NcclRedOp::kSum);
         return row.api().group_end();
       }},
      {"a factor", "00 47 44 00 00",
       [](NcclRow& row) {
         NcclRedOp op{};
         float factor = 2;
         return row.api().red_op_create_pre_mul_sum(&op, &factor, kNcclFloat,
                                                    NcclScalarResidence::kHostImmediate, row.comm);
       }},
      {"the end of a factor that is none", "40 47 44 40 40",
       [](NcclRow& row) { return row.api().red_op_destroy(static_cast<NcclRedOp>(99), row.comm); }},
      {"the end of a sum", "40 47 44 40 40",
       [](NcclRow& row) { return row.api().red_op_destroy(NcclRedOp::kSum, row.comm); }},
  };
}

// Children, and the end.
inline std::vector<NcclCall> nccl_child_calls() {
  return {
      {"split", "00 47 44 00 07",
       [](NcclRow& row) {
         static NcclComm child = nullptr;
         NcclConfig config = row.on.config();
         return row.api().comm_split(row.comm, 0, 0, &child, &config);
       }},
      {"split by a color that is none", "00 47 44 00 07",
       [](NcclRow& row) {
         static NcclComm child = nullptr;
         NcclConfig config = row.on.config();
         return row.api().comm_split(row.comm, -5, 0, &child, &config);
       }},
      {"shrink by nobody", "40 47 44 40 40",
       [](NcclRow& row) {
         static NcclComm child = nullptr;
         int none = 0;
         NcclConfig config = row.on.config();
         return row.api().comm_shrink(row.comm, &none, 0, &child, &config, kNcclShrinkDefault);
       }},
      {"shrink by a rank that is none", "04 47 44 04 00",
       [](NcclRow& row) {
         static NcclComm child = nullptr;
         int gone = 9;
         NcclConfig config = row.on.config();
         return row.api().comm_shrink(row.comm, &gone, 1, &child, &config, kNcclShrinkDefault);
       }},
      {"revoke", "70 70 70 40 70",
       [](NcclRow& row) { return row.api().comm_revoke(row.comm, kNcclRevokeDefault); }},
      {"revoke with a flag that is none", "40 47 44 40 40",
       [](NcclRow& row) { return row.api().comm_revoke(row.comm, 77); }},
      {"finalize", "70 44 44 44 70",
       [](NcclRow& row) { return row.api().comm_finalize(row.comm); }},
      {"abort", "00 00 00 00 00",
       [](NcclRow& row) {
         const NcclResult result = row.api().comm_abort(row.comm);
         row.comm = nullptr;
         return result;
       }},
  };
}

// All of them, in the order of NCCL's header.
inline std::vector<NcclCall> nccl_calls() {
  std::vector<NcclCall> all = nccl_collective_calls();
  for (const auto& more : {nccl_group_calls(), nccl_child_calls()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Brings a communicator into a state.
inline NcclRow nccl_in_state(NcclUnderTest& on, NcclState state, std::byte* data) {
  NcclRow row{on, nullptr, data};
  if (state == NcclState::kOfTwo) {
    row.comm = on.connected();
    return row;
  }
  NcclUniqueId id{};
  EXPECT_EQ(on.api().get_unique_id(&id), NcclResult::kSuccess);
  const int ranks = state == NcclState::kInProgress ? 2 : 1;
  NcclConfig config = on.config();
  const NcclResult begun = on.api().comm_init_rank_config(&row.comm, ranks, id, 0, &config);
  if (state == NcclState::kInProgress) return row;
  EXPECT_EQ(on.settled(row.comm, begun), NcclResult::kSuccess);
  if (state == NcclState::kFailed) {
    EXPECT_EQ(on.api().broadcast(data, data, 4, kNcclFloat, 7, row.comm, on.native()),
              NcclResult::kInvalidArgument);
  }
  if (state == NcclState::kRevoked) {
    EXPECT_EQ(on.settled(row.comm, on.api().comm_revoke(row.comm, kNcclRevokeDefault)),
              NcclResult::kSuccess);
  }
  return row;
}

// What the communicator says when nothing goes on, or when it has gone on for long.
inline NcclResult nccl_after(NcclUnderTest& on, NcclComm comm) {
  NcclResult state = NcclResult::kSuccess;
  if (comm == nullptr) return state;
  for (int i = 0; i < 3000; ++i) {
    EXPECT_EQ(on.api().comm_get_async_error(comm, &state), NcclResult::kSuccess);
    if (state != NcclResult::kInProgress) break;
    on.pause();
  }
  return state;
}

template <class Fixture>
class NcclStates : public ::testing::Test {
 protected:
  // Each call on a communicator of its own, which is left as it is.
  static void expect_answers(NcclState state) {
    for (const NcclCall& call : nccl_calls()) {
      Fixture::run(state == NcclState::kOfTwo ? 2 : 1, [state, &call](NcclUnderTest& on) {
        if (lacks(on.api(), state, call.name)) return;
        const Tensor data = on.made(16);
        NcclRow row = nccl_in_state(on, state, data.data());
        if (on.rank() == 0) expect_answer(row, call, state);
        if (state == NcclState::kOfTwo) on.meet();
        on.end_here();
      });
    }
  }

 private:
  static bool lacks(const NcclApi& api, NcclState state, const std::string& call) {
    const bool revokes = state == NcclState::kRevoked || call.starts_with("revoke");
    return (revokes && api.comm_revoke == nullptr) ||
           (call.starts_with("shrink") && api.comm_shrink == nullptr);
  }
  static void expect_answer(NcclRow& row, const NcclCall& call, NcclState state) {
    const NcclAnswer expected = call.in(state, row.api().version);
    const std::string what = std::string(call.name) + ", when " + name_of(state);
    const NcclResult result = call.call(row);
    // NCCL itself may have ended in the background what it only began.
    const bool has_ended = Fixture::kIsRealTime && expected.result == NcclResult::kInProgress &&
                           result == NcclResult::kSuccess;
    if (!has_ended) {
      EXPECT_EQ(static_cast<int>(result), static_cast<int>(expected.result)) << what;
    }
    EXPECT_EQ(static_cast<int>(nccl_after(row.on, row.comm)), static_cast<int>(expected.after))
        << "after " << what;
  }
};
TYPED_TEST_SUITE_P(NcclStates);

TYPED_TEST_P(NcclStates, OfOneThatIsReady) { TestFixture::expect_answers(NcclState::kReady); }
TYPED_TEST_P(NcclStates, OfOneInProgress) { TestFixture::expect_answers(NcclState::kInProgress); }
TYPED_TEST_P(NcclStates, OfOneThatHasFailed) { TestFixture::expect_answers(NcclState::kFailed); }
TYPED_TEST_P(NcclStates, OfOneThatWasRevoked) { TestFixture::expect_answers(NcclState::kRevoked); }
TYPED_TEST_P(NcclStates, OfOneOfTwoRanks) { TestFixture::expect_answers(NcclState::kOfTwo); }

REGISTER_TYPED_TEST_SUITE_P(NcclStates, OfOneThatIsReady, OfOneInProgress, OfOneThatHasFailed,
                            OfOneThatWasRevoked, OfOneOfTwoRanks);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
