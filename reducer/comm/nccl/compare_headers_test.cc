#include "reducer/comm/nccl/compare_headers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Headers of ranks that want to add up so many elements.
std::vector<CollectiveHeader> headers_of(const std::vector<std::uint64_t>& counts) {
  std::vector<CollectiveHeader> headers;
  for (const std::uint64_t count : counts) {
    Collective sum;
    sum.count = count;
    headers.push_back(header_of(sum, 0));
  }
  return headers;
}

int suspect_of(const std::vector<std::uint64_t>& counts, int rank) {
  const Status status = compare_headers(headers_of(counts), rank);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_TRUE(status.failure().definite);
  return status.failure().suspect;
}

TEST(CompareHeaders, F6RanksThatAgreeAreLeftAlone) {
  EXPECT_TRUE(compare_headers(headers_of({8}), 0).ok());
  for (const int rank : {0, 1, 2}) EXPECT_TRUE(compare_headers(headers_of({8, 8, 8}), rank).ok());
}

TEST(CompareHeaders, F6AllRanksNameTheFirstThatIsNotOfTheMajority) {
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(suspect_of({9, 8, 8}, rank), 0);
    EXPECT_EQ(suspect_of({8, 9, 8}, rank), 1);
    EXPECT_EQ(suspect_of({8, 8, 9}, rank), 2);
  }
  for (const int rank : {0, 1, 2, 3, 4}) EXPECT_EQ(suspect_of({8, 9, 8, 7, 8}, rank), 1);
}

TEST(CompareHeaders, F6WithoutAMajorityEachNamesAnother) {
  EXPECT_EQ(suspect_of({8, 9}, 0), 1);
  EXPECT_EQ(suspect_of({8, 9}, 1), 0);
  EXPECT_EQ(suspect_of({8, 9, 8, 9}, 0), 1);
  EXPECT_EQ(suspect_of({8, 9, 8, 9}, 3), 0);
}

TEST(CompareHeaders, F6BothSidesAreInTheText) {
  for (const int rank : {0, 1})
    EXPECT_THAT(compare_headers(headers_of({8, 9}), rank).failure().detail,
                AllOf(HasSubstr("rank 0 entered all_reduce of 8"),
                      HasSubstr("rank 1 entered all_reduce of 9")));
  // Ranks 0 and 1 agree, and the others are the majority.
  EXPECT_THAT(compare_headers(headers_of({8, 8, 9, 9, 9}), 1).failure().detail,
              AllOf(HasSubstr("rank 1 entered all_reduce of 8"),
                    HasSubstr("rank 2 entered all_reduce of 9")));
}

}  // namespace
}  // namespace lockstep
