#include "faults/injector.h"

#include <gtest/gtest.h>

namespace lockstep::faults {
namespace {

std::uint64_t count(const Injector& injector, Kind kind) {
  return injector.fired().counts[static_cast<std::size_t>(kind)];
}

Fault connect_error(std::uint32_t site) {
  Fault fault{Kind::kConnectError, 0, 0, site};
  fault.in_reset = true;
  return fault;
}

TEST(Injector, FiresAtItsSiteOfItsStepOnItsRankAlone) {
  Injector injector({{{Kind::kMessageDelay, 1, 2, 3, 40}}}, 4, 5);
  for (std::uint32_t step = 0; step < 5; ++step)
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      injector.begin_step(rank, step);
      for (std::uint32_t site = 0; site < 6; ++site) {
        const bool is_here = rank == 1 && step == 2 && site == 3;
        EXPECT_EQ(injector.on_message(rank).delay_us, is_here ? 40U : 0U);
        EXPECT_EQ(injector.on_operation(rank).delay_us, 0U);
      }
    }
  EXPECT_EQ(count(injector, Kind::kMessageDelay), 1U);
}

TEST(Injector, TakesRankAndStepModuloAndCutsDurations) {
  Injector injector({{{Kind::kSlowThread, 7, 9, 0, 20'000'000}}}, 3, 4);
  injector.begin_step(1, 1);
  EXPECT_EQ(injector.on_node(1).slow_us, kMaxDurationUs);
}

TEST(Injector, NothingFiresOutsideOfSteps) {
  Injector injector({{{Kind::kNodeThrows, 0, 0, 0, 0}, {Kind::kOperationError, 0, 0, 0, 0}}}, 1, 1);
  EXPECT_FALSE(injector.on_node(0).throws);
  injector.begin_step(0, 0);
  injector.end_step(0);
  EXPECT_FALSE(injector.on_operation(0).error);
  injector.begin_step(0, 0);
  EXPECT_TRUE(injector.on_node(0).throws);
  EXPECT_TRUE(injector.on_operation(0).error);
}

TEST(Injector, AFaultInAResetFiresInTheResetThatGoesOnWithItsStep) {
  Fault late{Kind::kOperationDelay, 1, 2, 1, 7};
  late.in_reset = true;
  Injector injector({{late, {Kind::kOperationDelay, 1, 2, 1, 40}}}, 2, 4);
  const auto second_operation_of = [&](std::uint32_t rank) {
    EXPECT_EQ(injector.on_operation(rank).delay_us, 0U);
    return injector.on_operation(rank).delay_us;
  };
  injector.begin_step(1, 1);
  EXPECT_EQ(second_operation_of(1), 0U);
  injector.begin_reset(1, 1);  // goes on with another step
  EXPECT_EQ(second_operation_of(1), 0U);
  injector.begin_reset(0, 2);  // on another rank
  EXPECT_EQ(second_operation_of(0), 0U);
  injector.begin_reset(1, 2);
  EXPECT_EQ(second_operation_of(1), 7U);
  injector.end_step(1);
  EXPECT_EQ(second_operation_of(1), 0U);
  injector.begin_step(1, 2);
  EXPECT_EQ(second_operation_of(1), 40U);
  injector.begin_reset(1, 4);  // behind the last step, which is not the first one again
  EXPECT_EQ(second_operation_of(1), 0U);
  EXPECT_EQ(count(injector, Kind::kOperationDelay), 2U);
}

TEST(Injector, CountsTheStateOfTheFaultsRankWhenItActs) {
  Fault flip{Kind::kPayloadFlip, 1, 0, 0, 0, 0, 3};
  Injector injector({{{Kind::kNodeThrows, 0, 0, 0}, {Kind::kOperationDelay, 1, 0, 0, 5}, flip}}, 2,
                    1);
  const auto in_state = [&](Kind kind, ReducerState state) {
    return injector.fired()
        .in_state[static_cast<std::size_t>(kind)][static_cast<std::size_t>(state)];
  };
  for (const std::uint32_t rank : {0U, 1U}) injector.begin_step(rank, 0);
  EXPECT_EQ(injector.on_operation(1).delay_us, 5U);  // nobody has said what rank 1 does
  injector.set_state(0, ReducerState::kArmed);
  injector.set_state(1, ReducerState::kReducing);
  EXPECT_TRUE(injector.on_node(0).throws);
  const std::vector<Fault> changes = injector.on_exchange(1);
  ASSERT_EQ(changes.size(), 1U);
  injector.set_state(1, ReducerState::kLaunched);
  injector.note_effect(changes.front());
  EXPECT_EQ(in_state(Kind::kNodeThrows, ReducerState::kArmed), 1U);
  EXPECT_EQ(in_state(Kind::kPayloadFlip, ReducerState::kLaunched), 1U);
  std::uint64_t all = 0;
  for (const auto& row : injector.fired().in_state)
    for (const std::uint64_t cell : row) all += cell;
  EXPECT_EQ(all, 2U);
  EXPECT_EQ(count(injector, Kind::kOperationDelay), 1U);
}

TEST(Injector, EachFaultFiresOnceEvenIfItsStepComesAgain) {
  Injector injector({{{Kind::kNodeThrows, 0, 0, 0, 0}}}, 1, 1);
  injector.begin_step(0, 0);
  EXPECT_TRUE(injector.on_node(0).throws);
  injector.begin_step(0, 1);  // step 0 again, modulo
  EXPECT_FALSE(injector.on_node(0).throws);
  EXPECT_EQ(count(injector, Kind::kNodeThrows), 1U);
}

TEST(Injector, SeveralFaultsOfOneSiteAddUp) {
  Injector injector({{{Kind::kMessageDelay, 0, 0, 1, 10},
                      {Kind::kMessageDelay, 0, 0, 1, 5},
                      {Kind::kLinkReset, 0, 0, 1, 0}}},
                    1, 1);
  injector.begin_step(0, 0);
  EXPECT_EQ(injector.on_message(0).delay_us, 0U);
  const MessageFault fault = injector.on_message(0);
  EXPECT_EQ(fault.delay_us, 15U);
  EXPECT_TRUE(fault.reset);
  EXPECT_FALSE(fault.stall);
}

TEST(Injector, OneCallFails) {
  Injector injector({{{Kind::kCallError, 1, 1, 2, 0}}}, 2, 2);
  for (std::uint32_t step = 0; step < 2; ++step) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      injector.begin_step(rank, step);
      for (std::uint32_t call = 0; call < 4; ++call)
        EXPECT_EQ(injector.on_call(rank), rank == 1 && step == 1 && call == 2);
    }
  }
  EXPECT_EQ(count(injector, Kind::kCallError), 1U);
}

TEST(Injector, CallsOfAHookAreCountedByTheirKind) {
  const auto at = static_cast<std::uint32_t>(HookCall::kFinish) + kHookCalls;
  Injector injector({{{Kind::kHookFails, 0, 1, 1, 0, 0, at}}}, 1, 2);
  for (std::uint32_t step = 0; step < 2; ++step) {
    injector.begin_step(0, step);
    for (std::uint32_t call = 0; call < 3; ++call) {
      EXPECT_TRUE(injector.on_hook(0, HookCall::kStart).empty());
      EXPECT_TRUE(injector.on_hook(0, HookCall::kFuture).empty());
      const bool is_planned = step == 1 && call == 1;
      EXPECT_EQ(injector.on_hook(0, HookCall::kFinish).size(), is_planned ? 1U : 0U);
    }
  }
  EXPECT_EQ(count(injector, Kind::kHookFails), 1U);
}

TEST(Injector, KnowsWhoExitedAndWhoIsSilenced) {
  Injector injector({{{Kind::kRankExit, 0, 0, 1, 0},
                      {Kind::kOperationError, 0, 0, 2, 0},
                      {Kind::kOperationStall, 1, 0, 0, 0},
                      {Kind::kMessageStall, 2, 0, 0, 0}}},
                    4, 1);
  for (std::uint32_t rank = 0; rank < 4; ++rank) injector.begin_step(rank, 0);
  EXPECT_FALSE(injector.on_operation(0).exit);
  EXPECT_FALSE(injector.exited(0));
  EXPECT_TRUE(injector.on_operation(0).exit);
  EXPECT_TRUE(injector.exited(0));
  EXPECT_FALSE(injector.on_operation(0).error);  // nobody is there any more
  EXPECT_TRUE(injector.on_operation(1).stall);
  EXPECT_TRUE(injector.on_message(2).stall);
  EXPECT_TRUE(injector.silenced(1));
  EXPECT_TRUE(injector.silenced(2));
  EXPECT_FALSE(injector.silenced(0));
  EXPECT_FALSE(injector.exited(3));
}

TEST(Injector, EveryKindHasASite) {
  for (int kind = 0; kind < kKinds; ++kind) {
    Injector injector({{{static_cast<Kind>(kind), 0, 0, 0, 1}}}, 1, 1);
    injector.begin_step(0, 0);
    static_cast<void>(injector.on_message(0));
    static_cast<void>(injector.on_operation(0));
    static_cast<void>(injector.on_call(0));
    static_cast<void>(injector.on_node(0));
    static_cast<void>(injector.on_memory(0));
    static_cast<void>(injector.on_user_place(0));
    static_cast<void>(injector.on_hook(0, HookCall::kStart));
    static_cast<void>(injector.on_store(0, true));
    if (static_cast<Kind>(kind) == Kind::kConnectError) {
      injector.reset({{connect_error(0)}}, 1, 1);
      injector.begin_connect(0, 0);
      static_cast<void>(injector.on_connect_call(0, ConnectCall::kUniqueId));
    }
    for (const Fault& fault : injector.on_exchange(0)) injector.note_effect(fault);
    const std::uint64_t fired = count(injector, static_cast<Kind>(kind));
    // A fault of the host counts as fired when the host says that it has acted.
    EXPECT_EQ(fired, is_of_host(static_cast<Kind>(kind)) ? 0U : 1U)
        << name_of(static_cast<Kind>(kind));
  }
}

TEST(Injector, MemoryIsRefusedForOneRequestOfAResetThatIsCountedFromConnectingOn) {
  constexpr std::uint32_t kRequests = 3;  // while connecting, and in the reset
  for (std::uint32_t site = 0; site < 2 * kRequests; ++site) {
    Fault fault{Kind::kMemoryRefused, 1, 0, site};
    fault.in_reset = true;
    Injector injector({{fault}}, 2, 2);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      injector.begin_step(rank, 1);
      EXPECT_FALSE(injector.on_memory(rank));
      injector.begin_connect(rank, 0);
      for (std::uint32_t request = 0; request < 2 * kRequests; ++request) {
        if (request == kRequests) injector.begin_reset(rank, 0);
        EXPECT_EQ(injector.on_memory(rank), rank == 1 && request == site) << site;
      }
    }
    EXPECT_EQ(count(injector, Kind::kMemoryRefused), 1U);
  }
}

TEST(Injector, AUserGivesUpOnceAtItsPlaceOfTheStepOrOfTheReset) {
  Fault in_step{Kind::kUserAbort, 1, 1, 1};
  Fault in_reset = in_step;
  in_reset.in_reset = true;
  in_reset.site = 0;
  Injector injector({{in_step, in_reset}}, 2, 2);
  injector.begin_step(1, 0);
  for (int place = 0; place < 3; ++place) EXPECT_FALSE(injector.on_user_place(1));
  injector.begin_connect(1, 1);
  EXPECT_FALSE(injector.on_user_place(1));
  injector.begin_reset(1, 1);
  const std::optional<Fault> first = injector.on_user_place(1);
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(first->in_reset);
  injector.begin_step(1, 1);
  EXPECT_FALSE(injector.on_user_place(1));
  EXPECT_TRUE(injector.on_user_place(1).has_value());
  EXPECT_FALSE(injector.on_user_place(1));
  EXPECT_EQ(count(injector, Kind::kUserAbort), 2U);
}

TEST(Injector, FaultsOfTheNetworkBeginAtTheirCollectiveOnce) {
  Injector injector(
      {{{Kind::kNetPartition, 1, 0, 1, 0, 1, 0}, {Kind::kNetLoss, 1, 0, 1, 0, 2, 30}}}, 3, 1);
  for (std::uint32_t rank = 0; rank < 3; ++rank) injector.begin_step(rank, 0);
  EXPECT_TRUE(injector.on_operation(1).of_host.empty());
  const std::vector<Fault> begun = injector.on_operation(1).of_host;
  ASSERT_EQ(begun.size(), 2U);
  EXPECT_EQ(begun[0].peer, 1U);  // all others
  EXPECT_EQ(begun[1].peer, 2U);
  EXPECT_EQ(link_amount(begun[1]), 10U);
  EXPECT_EQ(link_direction(begun[1]), LinkDirection::kBoth);
  EXPECT_TRUE(injector.on_operation(1).of_host.empty());
}

TEST(Injector, FaultsOfTheStoreInAResetBeginWhereTheRankConnects) {
  Fault fault{Kind::kStoreDead, 0, 1, 7};
  fault.in_reset = true;
  Injector injector({{fault, {Kind::kNodeClock, 0, 1, 0, 0, 0, 2000}}}, 1, 2);
  injector.begin_step(0, 1);
  EXPECT_TRUE(injector.on_connect(0).empty());
  injector.begin_reset(0, 1);
  ASSERT_EQ(injector.on_connect(0).size(), 1U);
  EXPECT_TRUE(injector.on_connect(0).empty());  // once
  EXPECT_TRUE(injector.on_operation(0).of_host.empty());
  injector.begin_step(0, 1);
  EXPECT_EQ(injector.on_operation(0).of_host.size(), 1U);
  EXPECT_EQ(count(injector, Kind::kStoreDead), 0U);  // who carries it out counts it
}

TEST(Injector, ARankIsLeftOutOrReplaced) {
  Injector injector(
      {{{Kind::kRankLeftOut, 0, 0, 0, 9, 0, 1}, {Kind::kRankReplaced, 1, 0, 0, 0, 0, 1}}}, 2, 1);
  for (std::uint32_t rank = 0; rank < 2; ++rank) injector.begin_step(rank, 0);
  const OperationFault left_out = injector.on_operation(0);
  EXPECT_TRUE(left_out.left_out && left_out.is_cut_off && !left_out.exit);
  EXPECT_EQ(left_out.away_us, 9U);
  EXPECT_TRUE(injector.on_operation(1).exit);
  EXPECT_TRUE(injector.exited(1));
}

TEST(Injector, ACallFailsOnlyWhileTheGroupConnects) {
  Injector injector({{connect_error(1)}}, 2, 2);
  injector.begin_step(0, 0);
  EXPECT_FALSE(injector.on_connect_call(0, ConnectCall::kUniqueId));
  EXPECT_FALSE(injector.on_connect_call(0, ConnectCall::kUniqueId));
  injector.begin_connect(0, 0);
  EXPECT_FALSE(injector.on_connect_call(0, ConnectCall::kUniqueId));
  EXPECT_FALSE(injector.on_connect_call(0, ConnectCall::kInit));
  EXPECT_TRUE(injector.on_connect_call(0, ConnectCall::kUniqueId));
  EXPECT_EQ(count(injector, Kind::kConnectError), 1U);
}

TEST(Injector, AStoreFailsFromACallOnUntilTheNextStep) {
  Injector injector({{{Kind::kStoreError, 1, 0, 1}, {Kind::kStoreDelay, 1, 0, 0, 7}}}, 2, 2);
  injector.begin_step(0, 0);
  injector.begin_step(1, 0);
  EXPECT_EQ(injector.on_store(1, false).delay_us, 7U);
  EXPECT_EQ(count(injector, Kind::kStoreError), 0U);
  EXPECT_TRUE(injector.on_store(1, false).fails);
  EXPECT_TRUE(injector.on_store(1, true).fails);
  EXPECT_FALSE(injector.on_store(0, true).fails);
  EXPECT_EQ(count(injector, Kind::kStoreError), 1U);
  injector.begin_step(1, 1);
  EXPECT_FALSE(injector.on_store(1, true).fails);
}

TEST(Injector, OnlyAValueThatIsWrittenCanBeTorn) {
  Injector injector({{{Kind::kStoreTorn, 0, 0, 1, 0, 0, 30}}}, 1, 1);
  injector.begin_step(0, 0);
  EXPECT_FALSE(injector.on_store(0, true).torn_at);
  EXPECT_FALSE(injector.on_store(0, false).torn_at);
  EXPECT_EQ(count(injector, Kind::kStoreTorn), 0U);
  EXPECT_EQ(injector.on_store(0, true).torn_at, 30U);
  EXPECT_EQ(count(injector, Kind::kStoreTorn), 1U);
}

TEST(Injector, ResetForgets) {
  Injector injector({{{Kind::kRankExit, 0, 0, 0, 0}}}, 2, 1);
  injector.begin_step(0, 0);
  EXPECT_TRUE(injector.on_operation(0).exit);
  injector.reset({}, 2, 1);
  EXPECT_FALSE(injector.exited(0));
  EXPECT_EQ(count(injector, Kind::kRankExit), 0U);
  injector.begin_step(0, 0);
  EXPECT_FALSE(injector.on_operation(0).exit);
}

}  // namespace
}  // namespace lockstep::faults
