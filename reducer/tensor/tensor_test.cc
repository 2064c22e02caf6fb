#include "reducer/tensor/tensor.h"

#include <gtest/gtest.h>

#include "reducer/base/sizes.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
namespace {

constexpr std::int64_t kTwoTo32 = std::int64_t{1} << 32;

TEST(Shape, SizesThatOverflowAreTooLargeAndNotDense) {
  const Shape shape = Shape::row_major({kTwoTo32, kTwoTo32});
  EXPECT_EQ(shape.elements(), kTooLarge);
  EXPECT_EQ(shape.extent(), kTooLarge);
  EXPECT_EQ(shape.bytes(DType::kFloat32), kTooLarge);
  EXPECT_FALSE(shape.is_dense());
  const std::int64_t sizes[] = {kTwoTo32, kTwoTo32, 4};
  EXPECT_EQ(Shape::column_major(sizes).elements(), kTooLarge);
  EXPECT_FALSE(Shape::column_major(sizes).is_dense());
}

TEST(Shape, ASizeOfZeroIsNoElementHoweverLargeTheOthersAre) {
  EXPECT_EQ(Shape::row_major({kTwoTo32, kTwoTo32, 0}).elements(), 0);
  EXPECT_EQ(Shape::row_major({0, kTwoTo32, kTwoTo32}).elements(), 0);
  EXPECT_TRUE(Shape::row_major({kTwoTo32, kTwoTo32, 0}).is_dense());
  EXPECT_EQ(Shape::row_major({kTwoTo32, kTwoTo32, 0}).bytes(DType::kFloat64), 0);
}

TEST(Shape, TheLargestThatCanBeCountedIsCounted) {
  EXPECT_EQ(Shape::row_major({kTwoTo32, kTwoTo32 / 4}).elements(), kTwoTo32 * (kTwoTo32 / 4));
  EXPECT_TRUE(Shape::row_major({kTwoTo32, kTwoTo32 / 4}).is_dense());
  EXPECT_EQ(Shape::row_major({kTwoTo32, kTwoTo32 / 4}).bytes(DType::kFloat64), kTooLarge);
}

TEST(Tensor, OfMoreBytesThanAnyMemoryIsRefused) {
  HostDevice device;
  for (const Shape& shape :
       {Shape::row_major({kTwoTo32 * (kTwoTo32 / 8)}), Shape::row_major({kTwoTo32, kTwoTo32})}) {
    const Result<Tensor> tensor = Tensor::empty(device, DType::kFloat64, shape);
    ASSERT_FALSE(tensor.has_value());
    EXPECT_EQ(tensor.error().code(), Code::kInvalidArgument);
    EXPECT_NE(tensor.error().to_string().find(shape.to_string()), std::string::npos);
  }
  Shape expanded = Shape::row_major({kTwoTo32, kTwoTo32});
  expanded.strides = {};
  EXPECT_FALSE(Tensor::empty(device, DType::kFloat32, expanded).has_value());
}

TEST(HostDevice, RefusesBytesThatWouldWrapAround) {
  HostDevice device;
  for (const std::size_t bytes :
       {~std::size_t{0}, ~std::size_t{0} - 62, ~std::size_t{0} / 2 - 62}) {
    const Result<Ref<Storage>> storage = device.allocate(bytes);
    ASSERT_FALSE(storage.has_value());
    EXPECT_EQ(storage.error().code(), Code::kOutOfMemory);
    EXPECT_FALSE(device.allocate_pinned(bytes).has_value());
  }
}

}  // namespace
}  // namespace lockstep
