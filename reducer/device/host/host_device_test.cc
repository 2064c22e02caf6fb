// What the conformance test of all devices cannot demand of a GPU: that the host's arithmetic does
// not depend on what the application has set for the calling thread (G9).
#include "reducer/device/host/host_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <functional>

#include "reducer/tensor/half.h"

namespace lockstep {
namespace {

class HostDeviceFloats : public ::testing::Test {
 protected:
  Tensor floats(std::initializer_list<float> values) {
    Tensor made = *Tensor::empty(device_, DType::kFloat32,
                                 Shape::row_major({static_cast<std::int64_t>(values.size())}));
    std::copy(values.begin(), values.end(), reinterpret_cast<float*>(made.data()));
    return made;
  }
  static float at(const Tensor& tensor, int i) {
    return reinterpret_cast<const float*>(tensor.data())[i];
  }
  // Runs every operation that computes, one after the other, and returns the results.
  std::vector<std::uint32_t> compute() {
    const Tensor small = floats({0x1p-140f, 0x1p-126f, -0x1p-149f, 0.1f});
    const Tensor sum = floats({0x1p-140f, -0x1p-127f, 0x1p-130f, 0.2f});
    const Tensor slot = floats({9, 9, 9, 9});
    const Tensor half = *Tensor::empty(device_, DType::kFloat16, small.shape());
    const Tensor wide = floats({9, 9, 9, 9});
    const Tensor total = floats({9, 9});
    device_.add({}, small, sum);
    const Transfer transfer{&small, slot.data(), &small.shape()};
    device_.pack_bucket({}, {&transfer, 1}, 0.5);
    const Tensor scaled = floats({0x1p-20f, 3e-8f, 0.1f, 1.00048828f});
    device_.convert({}, scaled, half, 1.0);
    device_.convert({}, half, wide, 1.0);
    device_.reduce_in_rank_order({}, small, total, 1.0);
    std::vector<std::uint32_t> bits;
    const Tensor* const results[] = {&sum, &slot, &wide};
    for (const Tensor* tensor : results)
      for (int i = 0; i < 4; ++i) bits.push_back(std::bit_cast<std::uint32_t>(at(*tensor, i)));
    for (int i = 0; i < 2; ++i) bits.push_back(std::bit_cast<std::uint32_t>(at(total, i)));
    return bits;
  }

  HostDevice device_;
};

TEST_F(HostDeviceFloats, G9AreRoundedToNearestWhateverTheThreadRounds) {
  const std::vector<std::uint32_t> expected = compute();
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const std::vector<std::uint32_t> got = compute();
    const int after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(got, expected) << mode;
    EXPECT_EQ(after, mode);
  }
}

#if defined(__x86_64__)
TEST_F(HostDeviceFloats, G9KeepSubnormalsWhateverTheThreadFlushes) {
  const std::vector<std::uint32_t> expected = compute();
  EXPECT_EQ(expected[0], std::bit_cast<std::uint32_t>(0x1p-139f));
  const unsigned usual = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(usual | 0x8040);  // This flushes subnormal results and inputs to zero.
  const std::vector<std::uint32_t> got = compute();
  __builtin_ia32_ldmxcsr(usual);
  EXPECT_EQ(got, expected);
}
#endif

// Copies of half a MiB or more take another way than small ones.
TEST(HostDeviceMemory, LargeCopiesMoveEveryByteAndNoOther) {
  HostDevice device;
  for (const std::int64_t elements : {(1 << 19) - 1, 1 << 19, (1 << 19) + 1, (1 << 20) + 77}) {
    for (const std::int64_t offset : {0, 1, 63}) {
      const Shape shape = Shape::row_major({elements});
      const Shape room = Shape::row_major({elements + 128});
      const Tensor from = *Tensor::empty(device, DType::kByte, room);
      const Tensor to = *Tensor::empty(device, DType::kByte, room);
      for (std::int64_t i = 0; i < room.elements(); ++i) {
        from.data()[i] = static_cast<std::byte>(i * 31 + i / 251);
        to.data()[i] = std::byte{0xee};
      }
      const Tensor source(from.storage(), 64 - offset, DType::kByte, shape);
      device.copy({}, source, Tensor(to.storage(), offset, DType::kByte, shape));
      std::byte* const begin = to.data() + offset;
      EXPECT_TRUE(std::equal(begin, begin + elements, source.data()));
      const auto is_untouched = [](std::byte each) { return each == std::byte{0xee}; };
      EXPECT_TRUE(std::all_of(to.data(), begin, is_untouched));
      EXPECT_TRUE(std::all_of(begin + elements, to.data() + elements + 128, is_untouched));
    }
  }
}

TEST(HostDeviceMemory, FreshMemoryIsANaNInEachDtypeWhereATestAsksForIt) {
  HostDevice device(FreshMemory::kNaN);
  for (const std::size_t bytes : {0u, 1u, 64u, 1000u}) {
    const Ref<Storage> storage = *device.allocate(bytes);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(storage->data()[i], std::byte{0xff});
  }
}

}  // namespace
}  // namespace lockstep
