#include "reference/buckets.h"

#include <gtest/gtest.h>

namespace lockstep::reference {
namespace {

using Indices = std::vector<std::uint32_t>;
using Offsets = std::vector<std::uint64_t>;

Parameter tensor(std::uint32_t elements, DType dtype = DType::kFloat32, std::uint32_t device = 0) {
  Parameter parameter;
  parameter.sizes = {elements};
  parameter.dtype = dtype;
  parameter.device = device;
  return parameter;
}

std::vector<ExpectedBucket> buckets_of(const std::vector<Parameter>& parameters,
                                       std::uint64_t first_bytes, std::uint64_t bytes) {
  Program program;
  program.parameters = parameters;
  program.options.first_bucket_bytes = first_bytes;
  program.options.bucket_bytes = bytes;
  return assign_buckets(program, Contract::lockstep());
}

// B1. The first bucket closes at 40 of 40 bytes, the second at 48 of 44; B2: launched in reverse.
TEST(Buckets, CloseWhenTheyReachTheirLimitAndAreLaunchedInReverse) {
  const auto buckets = buckets_of({tensor(4), tensor(6), tensor(10), tensor(2), tensor(1)}, 40, 44);
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(buckets[2].parameters, (Indices{0, 1}));
  EXPECT_EQ(buckets[1].parameters, (Indices{2, 3}));
  EXPECT_EQ(buckets[0].parameters, (Indices{4}));
}

// B1. The third limit is that of the third bucket and of all behind it.
TEST(Buckets, ThreeLimitsAreThoseOfThreeBucketsAndTheRest) {
  Program program;
  program.parameters = std::vector<Parameter>(9, tensor(10));
  program.options.first_bucket_bytes = 40;
  program.options.bucket_bytes = 80;
  program.options.last_bucket_bytes = 120;
  const auto buckets = assign_buckets(program, Contract::lockstep());
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_EQ(buckets[3].parameters, (Indices{0}));
  EXPECT_EQ(buckets[2].parameters, (Indices{1, 2}));
  EXPECT_EQ(buckets[1].parameters, (Indices{3, 4, 5}));
  EXPECT_EQ(buckets[0].parameters, (Indices{6, 7, 8}));
}

// B1. Padding does not count: 4 + 4 + 4 bytes stay under 13, though they lie 64 bytes apart.
TEST(Buckets, LimitsCountTheParametersOwnBytes) {
  EXPECT_EQ(buckets_of({tensor(1), tensor(1), tensor(1)}, 13, 13).size(), 1U);
  EXPECT_EQ(buckets_of({tensor(1), tensor(1), tensor(1)}, 12, 12).size(), 1U);
  EXPECT_EQ(buckets_of({tensor(1), tensor(1), tensor(1)}, 8, 12).size(), 2U);
}

// B1. A bucket that is over its limit with its first member has one member.
TEST(Buckets, NeverSplitAParameterAndHoldOneEachWithoutALimit) {
  const auto buckets = buckets_of({tensor(1000), tensor(0), tensor(1000)}, 0, 0);
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(buckets[0].parameters, (Indices{2}));
  EXPECT_EQ(buckets[1].parameters, (Indices{1}));
  EXPECT_EQ(buckets[1].count, 0U);
  EXPECT_EQ(buckets[2].count, 1000U);
}

// B1. Groups by dtype and device, every one with the first limit, listed by their first members.
TEST(Buckets, GroupByTypeAndDeviceInTheOrderOfFirstMembers) {
  const auto buckets =
      buckets_of({tensor(1, DType::kFloat16), tensor(1), tensor(2, DType::kFloat16),
                  tensor(1, DType::kFloat32, 1), tensor(3), tensor(9, DType::kFloat16)},
                 4, 1000);
  // fp16: {0, 2} reaches 6 of 4 bytes; {5}. fp32 on device 0: {1} has 4 of 4; {4}. Device 1: {3}.
  ASSERT_EQ(buckets.size(), 5U);
  EXPECT_EQ(buckets[4].parameters, (Indices{0, 2}));
  EXPECT_EQ(buckets[3].parameters, (Indices{1}));
  EXPECT_EQ(buckets[2].parameters, (Indices{3}));
  EXPECT_EQ(buckets[1].parameters, (Indices{4}));
  EXPECT_EQ(buckets[0].parameters, (Indices{5}));
  EXPECT_EQ(buckets[2].device, 1U);
  EXPECT_EQ(buckets[4].dtype, DType::kFloat16);
  EXPECT_EQ(buckets[1].dtype, DType::kFloat32);
}

// B1, B6. Frozen parameters and further names of a shared one have no place.
TEST(Buckets, LeaveOutFrozenAndSharedEntries) {
  std::vector<Parameter> parameters = {tensor(1), tensor(1), tensor(1), tensor(1)};
  parameters[1].frozen = true;
  parameters[2].shared_with = 2;
  const auto buckets = buckets_of(parameters, 1000, 1000);
  ASSERT_EQ(buckets.size(), 1U);
  EXPECT_EQ(buckets[0].parameters, (Indices{0, 3}));
}

// B3. 64 bytes are 16 floats or 32 halves; the bucket ends where its last member ends.
TEST(Buckets, MembersStartOn64BytesAndTheLastOneIsNotPadded) {
  const auto floats = buckets_of({tensor(5), tensor(16), tensor(17), tensor(3)}, 1000, 1000);
  EXPECT_EQ(floats[0].offsets, (Offsets{0, 16, 32, 64}));
  EXPECT_EQ(floats[0].count, 67U);
  const auto halves =
      buckets_of({tensor(5, DType::kFloat16), tensor(1, DType::kFloat16)}, 1000, 1000);
  EXPECT_EQ(halves[0].offsets, (Offsets{0, 32}));
  EXPECT_EQ(halves[0].count, 33U);
  const auto doubles =
      buckets_of({tensor(9, DType::kFloat64), tensor(1, DType::kFloat64)}, 1000, 1000);
  EXPECT_EQ(doubles[0].offsets, (Offsets{0, 16}));
}

// B3, G10. A member without elements starts on 64 bytes too; where it comes last, the bucket ends
// there, padding before it included.
TEST(Buckets, MembersWithoutElementsHaveAnOffset) {
  const auto buckets = buckets_of({tensor(5), tensor(0), tensor(2), tensor(0)}, 1000, 1000);
  EXPECT_EQ(buckets[0].offsets, (Offsets{0, 16, 16, 32}));
  EXPECT_EQ(buckets[0].count, 32U);
}

}  // namespace
}  // namespace lockstep::reference
