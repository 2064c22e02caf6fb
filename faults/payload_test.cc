#include "faults/payload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "faults/injector.h"

namespace lockstep::faults {
namespace {

constexpr std::size_t kFrame = 8;

std::vector<std::byte> counted(std::size_t bytes, int first) {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i < bytes; ++i)
    out.push_back(static_cast<std::byte>(first + static_cast<int>(i)));
  return out;
}

Fault fault(Kind kind, std::uint32_t at) {
  Fault out;
  out.kind = kind;
  out.at = at;
  return out;
}

// Three frames of 1, 2, 3, ...; what becomes of them.
std::vector<int> after(Kind kind, std::uint32_t at, std::size_t peer,
                       std::vector<std::byte> before = {}) {
  std::vector<std::byte> bytes = counted(3 * kFrame, 1);
  corrupt(fault(kind, at), peer, {bytes, kFrame}, {before, kFrame});
  std::vector<int> out;
  for (const std::byte byte : bytes) out.push_back(static_cast<int>(byte));
  return out;
}

std::vector<int> untouched() {
  std::vector<int> out(3 * kFrame);
  std::iota(out.begin(), out.end(), 1);
  return out;
}

TEST(Payload, AFlipChangesOneBitOfTheFrame) {
  std::vector<int> expected = untouched();
  expected[kFrame + 1] ^= 4;
  EXPECT_EQ(after(Kind::kPayloadFlip, 10, 1), expected);
  EXPECT_EQ(after(Kind::kPayloadFlip, 10 + 8 * kFrame, 1), expected);
}

TEST(Payload, ATruncationLeavesZeros) {
  std::vector<int> expected = untouched();
  for (std::size_t i = 3; i < kFrame; ++i) expected[i] = 0;
  EXPECT_EQ(after(Kind::kPayloadTruncate, 3, 0), expected);
}

TEST(Payload, ASwapIsWithTheFrameOfTheNextRank) {
  std::vector<int> expected = untouched();
  std::swap_ranges(expected.begin(), expected.begin() + kFrame, expected.begin() + 2 * kFrame);
  EXPECT_EQ(after(Kind::kPayloadSwap, 0, 2), expected);
}

TEST(Payload, AStaleFrameIsTheOneBeforeAsFarAsItReaches) {
  EXPECT_EQ(after(Kind::kPayloadStale, 0, 1), untouched());  // there was none
  std::vector<int> expected = untouched();
  std::iota(expected.begin() + kFrame, expected.begin() + 2 * kFrame, 108);
  EXPECT_EQ(after(Kind::kPayloadStale, 0, 1, counted(3 * kFrame, 100)), expected);
}

TEST(Payload, AShiftMovesTheFrameOn) {
  std::vector<int> expected = untouched();
  std::rotate(expected.begin(), expected.begin() + kFrame - 3, expected.begin() + kFrame);
  EXPECT_EQ(after(Kind::kPayloadShift, 2, 0), expected);
}

TEST(Payload, APeerThatIsNotThereIsLeftAlone) {
  EXPECT_EQ(after(Kind::kPayloadFlip, 0, 3), untouched());
}

TEST(Injector, PayloadFaultsHaveSitesOfTheirOwnAndFireByTheirEffect) {
  FaultPlan plan;
  for (const Kind kind : {Kind::kPayloadFlip, Kind::kPayloadStale}) {
    Fault planned = fault(kind, 9);
    planned.rank = 1;
    planned.site = 1;
    planned.peer = 1;  // itself: the next one is meant
    plan.faults.push_back(planned);
  }
  Injector injector(plan, 3, 1);
  EXPECT_TRUE(injector.has_stale());
  EXPECT_TRUE(injector.on_exchange(1).empty());  // between steps nothing counts
  injector.begin_step(1, 0);
  injector.on_operation(1);
  injector.on_message(1);
  EXPECT_TRUE(injector.on_exchange(1).empty());
  const std::vector<Fault> planned = injector.on_exchange(1);
  ASSERT_EQ(planned.size(), 2u);
  EXPECT_EQ(planned[0].peer, 2u);
  const auto fired = [&](Kind kind) {
    return injector.fired().counts[static_cast<std::size_t>(kind)];
  };
  EXPECT_EQ(fired(Kind::kPayloadFlip), 0u);
  injector.note_effect(planned[0]);
  EXPECT_EQ(fired(Kind::kPayloadFlip), 1u);
  EXPECT_EQ(fired(Kind::kPayloadStale), 0u);
  EXPECT_TRUE(injector.on_exchange(1).empty());
}

}  // namespace
}  // namespace lockstep::faults
