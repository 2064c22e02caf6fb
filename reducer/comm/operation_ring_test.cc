#include "reducer/comm/operation_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

namespace lockstep {
namespace {

struct Operation {
  std::uint64_t number = 0;
};

// A queue grows and shrinks over several turns of the ring: every operation in it is found by its
// number, at its first address.
TEST(OperationRing, KeepsOperationsWhereTheyAreWhileItGrows) {
  OperationRing<Operation> ring;
  std::vector<Operation*> put;
  std::uint64_t oldest = 0;
  for (const std::uint64_t most : {7u, 20u, 100u, 3u, 1500u, 50u}) {
    for (int turn = 0; turn < 5; ++turn) {
      while (put.size() - oldest < most) {
        Operation* const place = ring.push(oldest, put.size());
        ASSERT_NE(place, nullptr);
        place->number = put.size();
        put.push_back(place);
        for (std::uint64_t number = oldest; number < put.size(); ++number) {
          ASSERT_EQ(&ring.at(number), put[number]);
          ASSERT_EQ(put[number]->number, number);
        }
      }
      oldest += (most + 1) / 2 + static_cast<std::uint64_t>(turn % 2);
      oldest = std::min<std::uint64_t>(oldest, put.size());
    }
  }
}

struct Scarce {
  Scarce() {
    if (left == 0) throw std::bad_alloc();
    --left;
  }
  static inline int left = 0;
  std::uint64_t number = 0;
};

TEST(OperationRing, WithoutMemoryForMoreNothingChanges) {
  Scarce::left = 50;
  OperationRing<Scarce> ring;
  std::uint64_t count = 0;
  while (Scarce* const place = ring.push(0, count)) place->number = count++;
  ASSERT_EQ(count, 32u);
  EXPECT_EQ(ring.push(0, count), nullptr);
  for (std::uint64_t number = 0; number < count; ++number)
    EXPECT_EQ(ring.at(number).number, number);
  EXPECT_NE(ring.push(1, count), nullptr);  // The oldest has ended.
  Scarce::left = 50;
  ASSERT_NE(ring.push(0, count), nullptr);
  for (std::uint64_t number = 0; number < count; ++number)
    EXPECT_EQ(ring.at(number).number, number);
}

}  // namespace
}  // namespace lockstep
