#include "reducer/tensor/sparse.h"

#include <gtest/gtest.h>

#include "reducer/device/host/host_device.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using Rows = std::vector<std::int64_t>;

Tensor sparse(Device& device, const Shape& whole, const Rows& rows, const Values& values,
              DType dtype = DType::kFloat32) {
  Tensor made = *empty_sparse(device, dtype, whole, rows);
  for (std::size_t i = 0; i < values.size(); ++i) set_element(dtype, made.data(), i, values[i]);
  return made;
}

Rows rows_of(const Tensor& tensor) { return {tensor.rows().begin(), tensor.rows().end()}; }

class Sparse : public ::testing::Test {
 protected:
  HostDevice device_{FreshMemory::kNaN};
  const Shape whole_ = Shape::row_major({5, 2});
};

TEST_F(Sparse, TheSumOfTwoIsTheEntriesOfOneAndThenThoseOfTheOther) {
  const Tensor a = sparse(device_, whole_, {3, 0}, {1, 2, 3, 4});
  const Tensor b = sparse(device_, whole_, {3}, {5, 6});
  const Tensor sum = *append(a, b);
  EXPECT_EQ(rows_of(sum), (Rows{3, 0, 3}));
  EXPECT_EQ(values_of(sum), (Values{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(rows_of(a), (Rows{3, 0}));  // The operands do not change.
  EXPECT_EQ(values_of(b), (Values{5, 6}));
}

TEST_F(Sparse, CoalescingFoldsTheEntriesOfARowInTheirOrder) {
  // 1e8 + 1 is 1e8 in float32, so the order shows.
  const Tensor given = sparse(device_, whole_, {4, 1, 4, 4}, {1e8, 1, 7, 8, -1e8, 1e8, 1, -1e8});
  const Tensor sum = *coalesce(given, whole_);
  EXPECT_EQ(rows_of(sum), (Rows{1, 4}));
  EXPECT_EQ(values_of(sum), (Values{7, 8, 1, 0}));
  EXPECT_EQ(rows_of(given), (Rows{4, 1, 4, 4}));
}

TEST_F(Sparse, CoalescingLeavesPaddingOut) {
  const Tensor given = sparse(device_, whole_, {2, -1, 2, -1}, {1, 2, 9, 9, 3, 4, 9, 9});
  const Tensor sum = *coalesce(given, whole_);
  EXPECT_EQ(rows_of(sum), (Rows{2}));
  EXPECT_EQ(values_of(sum), (Values{4, 6}));
}

TEST_F(Sparse, RowsMayHaveNoElementsAndATableOneDimension) {
  const Shape wide = Shape::row_major({3, 0});
  EXPECT_EQ(rows_of(*coalesce(sparse(device_, wide, {2, 0, 2}, {}), wide)), (Rows{0, 2}));
  const Shape flat = Shape::row_major({3});
  const Tensor sum = *coalesce(sparse(device_, flat, {2, 0, 2}, {1, 2, 4}), flat);
  EXPECT_EQ(rows_of(sum), (Rows{0, 2}));
  EXPECT_EQ(values_of(sum), (Values{2, 5}));
  const Tensor nothing = *coalesce(sparse(device_, flat, {}, {}), flat);
  EXPECT_TRUE(nothing.is_sparse());
  EXPECT_EQ(nothing.elements(), 0);
}

TEST_F(Sparse, KnowsWhatItCanBeAGradientOf) {
  const Tensor given = sparse(device_, whole_, {4}, {1, 2});
  EXPECT_TRUE(is_sparse_of(given, whole_));
  EXPECT_TRUE(is_sparse_of(given, Shape::column_major(std::vector<std::int64_t>{5, 2})));
  EXPECT_FALSE(is_sparse_of(given, Shape::row_major({4, 2})));  // It has no row 4.
  EXPECT_FALSE(is_sparse_of(given, Shape::row_major({5, 3})));
  EXPECT_FALSE(is_sparse_of(*Tensor::empty(device_, DType::kFloat32, whole_), whole_));
  const Tensor zeroed = without_entries(given);
  EXPECT_TRUE(is_sparse_of(zeroed, whole_));
  EXPECT_EQ(zeroed.storage(), given.storage());
  EXPECT_EQ(zeroed.elements(), 0);
}

}  // namespace
}  // namespace lockstep::testing
