// What ranks decide from the sum of their announcements (S2), without a group.
#include "reducer/uneven_inputs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using Event = UnevenInputs::Event;

// Ranks in a join, and the sum of what they announce.
class Ranks {
 public:
  explicit Ranks(std::vector<JoinOptions> options) : ranks_(options.size()) {
    const int size = static_cast<int>(ranks_.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      EXPECT_TRUE(ranks_[r].begin(options[r], size).ok());
  }
  // Adds the announcements up, in the memory of every rank.
  void announce(const std::vector<Event>& events) {
    std::vector<Collective> sent;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      sent.push_back(
          ranks_[r].announce(events[r], static_cast<int>(r), static_cast<int>(ranks_.size())));
    std::vector<std::int32_t> sum(sent.front().count, 0);
    for (const Collective& each : sent)
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] += reinterpret_cast<const std::int32_t*>(each.data)[i];
    for (const Collective& each : sent)
      std::memcpy(each.data, sum.data(), sum.size() * sizeof(std::int32_t));
  }
  UnevenInputs& operator[](std::size_t rank) { return ranks_[rank]; }
  std::size_t size() const { return ranks_.size(); }

 private:
  std::vector<UnevenInputs> ranks_;
};

TEST(UnevenInputs, AllRanksDoWhatThoseThatTrainAnnounce) {
  Ranks ranks({{}, {}, {}});
  for (const Event event : {Event::kBuffers, Event::kRebuild, Event::kPass}) {
    ranks.announce({Event::kNone, event, event});
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const Result<Event> agreed = ranks[r].agree();
      ASSERT_TRUE(agreed);
      EXPECT_EQ(*agreed, event);
      EXPECT_FALSE(ranks[r].all_train());
      EXPECT_EQ(ranks[r].lowest_that_trains(), 1);
    }
  }
  ranks.announce({Event::kNone, Event::kNone, Event::kNone});
  EXPECT_EQ(*ranks[0].agree(), Event::kNone);
  EXPECT_EQ(ranks[0].lowest_that_trains(), 1) << "who trained last";
}

TEST(UnevenInputs, TheMeanIsTakenOverTheGroupOrOverThoseThatTrain) {
  for (const bool by_active : {false, true}) {
    JoinOptions options;
    options.divide_by_active = by_active;
    Ranks ranks({options, options, options, options});
    ranks.announce({Event::kPass, Event::kNone, Event::kPass, Event::kNone});
    ASSERT_TRUE(ranks[1].agree());
    EXPECT_EQ(ranks[1].scale().divisor(), by_active ? 2 : 4);
    EXPECT_EQ(ranks[1].scale().of(DType::kFloat64), by_active ? 0.5 : 0.25);
  }
}

TEST(UnevenInputs, RanksAtDifferentPointsAllRaise) {
  Ranks ranks({{}, {}, {}});
  ranks.announce({Event::kPass, Event::kBuffers, Event::kPass});
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Result<Event> agreed = ranks[r].agree();
    ASSERT_FALSE(agreed);
    EXPECT_EQ(agreed.error().code(), Code::kMismatch);
    EXPECT_EQ(agreed.error().failure().rank, kNone) << "nobody can tell which rank is wrong";
    EXPECT_TRUE(agreed.error().failure().definite);
  }
}

TEST(UnevenInputs, DifferentOptionsAreRefusedByAllRanks) {
  JoinOptions throws;
  throws.throw_on_early_termination = true;
  Ranks ranks({{}, throws});
  ranks.announce({Event::kPass, Event::kPass});
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Result<Event> agreed = ranks[r].agree();
    ASSERT_FALSE(agreed);
    EXPECT_EQ(agreed.error().code(), Code::kMismatch);
    EXPECT_NE(agreed.error().failure().detail.find("different options"), std::string::npos);
  }
}

TEST(UnevenInputs, EarlyTerminationNamesTheLowestRankWithoutInputs) {
  JoinOptions throws;
  throws.throw_on_early_termination = true;
  Ranks ranks({throws, throws, throws});
  ranks.announce({Event::kPass, Event::kPass, Event::kPass});
  ASSERT_TRUE(ranks[0].agree()) << "all ranks still train";
  ranks.announce({Event::kPass, Event::kNone, Event::kNone});
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Result<Event> agreed = ranks[r].agree();
    ASSERT_FALSE(agreed);
    EXPECT_EQ(agreed.error().code(), Code::kUnevenInputs);
    EXPECT_EQ(agreed.error().failure().rank, 1);
  }
}

TEST(UnevenInputs, AJoinWithoutAnEventTakesTheStateOfRankZero) {
  Ranks ranks({{}, {}});
  ranks.announce({Event::kNone, Event::kNone});
  EXPECT_EQ(*ranks[1].agree(), Event::kNone);
  EXPECT_EQ(ranks[1].lowest_that_trains(), 0);
  EXPECT_EQ(ranks[1].begin({}, 2).code(), Code::kInvalidArgument) << "a join in a join";
  ranks[1].end();
  EXPECT_TRUE(ranks[1].all_train());
  EXPECT_TRUE(ranks[1].begin({}, 2).ok());
}

}  // namespace
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
