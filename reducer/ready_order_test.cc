// The order that the rebuilt buckets follow (B2).
#include "reducer/ready_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::vector<std::int32_t> recorded(const ReadyOrder& order) {
  return {order.span().begin(), order.span().end()};
}

TEST(ReadyOrder, TheFirstPassThatAllRanksTrainedIsRecorded) {
  ReadyOrder order;
  order.start_over(3);
  order.begin_pass();
  order.note_ready(0);
  order.begin_pass();  // The pass before it failed, or other ranks trained alone in it.
  EXPECT_TRUE(recorded(order).empty());
  for (const std::uint32_t parameter : {2u, 0u, 1u}) order.note_ready(parameter);
  EXPECT_FALSE(order.is_rebuild_due());
  order.end_pass();
  EXPECT_TRUE(order.is_rebuild_due());
  EXPECT_EQ(recorded(order), (std::vector<std::int32_t>{2, 0, 1}));
}

TEST(ReadyOrder, LaterPassesDoNotChangeIt) {
  ReadyOrder order;
  order.start_over(2);
  order.begin_pass();
  order.note_ready(1);
  order.note_ready(0);
  order.end_pass();
  order.begin_pass();
  order.note_ready(0);
  order.end_pass();
  EXPECT_EQ(recorded(order), (std::vector<std::int32_t>{1, 0}));
}

TEST(ReadyOrder, BucketsAreRebuiltOnceUntilEverythingStartsOver) {
  ReadyOrder order;
  order.start_over(1);
  order.note_ready(0);
  order.end_pass();
  order.span()[0] = 7;  // The order of rank 0 takes the place of one's own.
  order.mark_rebuilt();
  EXPECT_TRUE(order.is_rebuilt());
  EXPECT_FALSE(order.is_rebuild_due());
  EXPECT_EQ(recorded(order), (std::vector<std::int32_t>{7}));
  order.end_pass();
  EXPECT_FALSE(order.is_rebuild_due());
  order.start_over(1);
  EXPECT_FALSE(order.is_rebuilt());
  EXPECT_TRUE(recorded(order).empty());
}

}  // namespace
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
