// CudaDevice on a GPU. Where there is none each test is skipped; what can be told without one is
// in cuda_device_fake_test.cc and kernel_emulation_test.cc, with the same cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>

#include "reducer/device/cuda/test_cuda_subject.h"
#include "reducer/device/host/host_device.h"
#include "reducer/device/test_no_gpu.h"

namespace lockstep {
namespace {

using platform::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::open(0);
    if (!opened && opened.error().code() == Code::kInvalidArgument)
      GTEST_SKIP() << no_gpu(opened.error());
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    device = std::move(*opened);
    own = device->current_stream();
  }

  Tensor made(DType dtype, std::int64_t elements) {
    return *Tensor::empty(*device, dtype, Shape::row_major({elements}));
  }
  Status finish(const Stream& stream) {
    return device->synchronize(device->record(stream), Deadline::in(seconds(60)));
  }

  std::unique_ptr<CudaDevice> device;
  Stream own;
};

TEST_F(CudaDeviceTest, OperationsHaveTheBitsOfTheHost) {
  CudaSubject subject(*device);
  std::mt19937_64 random(11);
  for (int i = 0; i < 500; ++i) {
    const KernelCase value = draw_case([&](std::uint64_t below) { return random() % below; });
    ASSERT_EQ(expect_gather(subject, value), "") << value;
    ASSERT_EQ(expect_gather_in_place(subject, value), "") << value;
    ASSERT_EQ(expect_scatter(subject, value), "") << value;
    ASSERT_EQ(expect_copy(subject, value), "") << value;
    ASSERT_EQ(expect_add(subject, value), "") << value;
    ASSERT_EQ(expect_convert(subject, value), "") << value;
    ASSERT_EQ(expect_fold(subject, value), "") << value;
  }
}

TEST_F(CudaDeviceTest, ManyAndLargeParametersHaveTheBitsOfTheHost) {
  CudaSubject subject(*device);
  KernelCase many;
  many.factor = 1.0 / 3;
  for (std::uint32_t i = 0; i < 1000; ++i)
    many.pieces.push_back({{1 + i % 70, 1 + i % 3}, i % 2, 0, 1, i % 5, i % 3});
  KernelCase some = many;  // whose table travels in the argument
  some.pieces.resize(200);
  KernelCase large;
  large.factor = 1.0 / 7;
  large.shards = 4;
  large.pieces.push_back({{3'000'001}, 0, 0, 1, 1, 1});
  large.pieces.push_back({{1500, 1111}, 1, 0, 1, 0, 0});
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    many.dtype = some.dtype = large.dtype = dtype;
    for (const KernelCase& value : {many, some, large}) {
      EXPECT_EQ(expect_gather(subject, value), "") << name_of(dtype);
      EXPECT_EQ(expect_scatter(subject, value), "") << name_of(dtype);
      EXPECT_EQ(expect_add(subject, value), "") << name_of(dtype);
    }
    EXPECT_EQ(expect_fold(subject, large), "") << name_of(dtype);
  }
}

// The GPU's own conversions: every 16-bit value to float and back, and floats around every point
// where rounding to 16 bits changes.
TEST_F(CudaDeviceTest, ConversionsOfEverySixteenBitValueAreThoseOfTheHost) {
  HostDevice host;
  CudaSubject subject(*device);
  constexpr std::int64_t kCount = 3 * 65536;
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor halves = *Tensor::empty(host, half, Shape::row_major({kCount}));
    const Tensor floats = *Tensor::empty(host, DType::kFloat32, Shape::row_major({kCount}));
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      std::memcpy(halves.data() + 2 * i, &bits, 2);
    }
    host.convert({}, halves, floats, 1.0);
    const Tensor halves_there = made(half, kCount);
    const Tensor floats_there = made(DType::kFloat32, kCount);
    subject.write(*halves_there.storage(),
                  {halves.data(), halves.data() + halves.storage()->bytes()});
    device->convert(own, halves_there, floats_there, 1.0);
    const std::vector<std::byte> got = subject.read(*floats_there.storage());
    std::vector<float> inputs(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      float expected = 0;
      float there = 0;
      std::memcpy(&expected, floats.data() + 4 * i, 4);
      std::memcpy(&there, &got[4 * i], 4);
      const bool both_nan = std::isnan(expected) && std::isnan(there);
      ASSERT_TRUE(both_nan || std::memcmp(&expected, &there, 4) == 0) << i;
      // Half-way to the next value in 16 bits, and one float to either side of that.
      const std::uint32_t step = half == DType::kFloat16 ? 0x1000u : 0x8000u;
      inputs[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(expected) + step - 1 +
                                       static_cast<std::uint32_t>(i / 65536));
    }
    std::memcpy(floats.data(), inputs.data(), 4 * kCount);
    host.convert({}, floats, halves, 1.0);
    subject.write(*floats_there.storage(), {floats.data(), floats.data() + 4 * kCount});
    device->convert(own, floats_there, halves_there, 1.0);
    const std::vector<std::byte> back = subject.read(*halves_there.storage());
    for (std::size_t i = 0; i < kCount; ++i) {
      if (std::isnan(inputs[i])) continue;
      ASSERT_EQ(std::memcmp(halves.data() + 2 * i, &back[2 * i], 2), 0) << name_of(half) << i;
    }
  }
}

// Work that takes long: many passes over much memory. A sanitizer makes each of them take a hundred
// times as long, and LOCKSTEP_SANITIZED=1 says that there is one.
void keep_busy(CudaDevice& device, const Stream& stream, const Tensor& large) {
  const char* const sanitized = std::getenv("LOCKSTEP_SANITIZED");
  const int passes = sanitized != nullptr && std::string_view(sanitized) == "1" ? 20 : 2000;
  for (int i = 0; i < passes; ++i) device.add(stream, large, large);
}

TEST_F(CudaDeviceTest, SynchronizeEndsAtItsDeadlineAndCanBeRepeated) {
  const Tensor large = made(DType::kFloat32, 64 << 20);
  device->fill_zero(own, large.data(), large.storage()->bytes());
  ASSERT_TRUE(finish(own).ok());
  keep_busy(*device, own, large);
  const Event event = device->record(own);
  const platform::Duration start = platform::now();
  const Status late = device->synchronize(event, Deadline::in(milliseconds(5)));
  EXPECT_EQ(late.code(), Code::kTimeout);
  EXPECT_LT(platform::now() - start, milliseconds(50));
  EXPECT_TRUE(device->synchronize(event, Deadline::in(seconds(60))).ok());
}

TEST_F(CudaDeviceTest, AStreamWaitsForAnEventOfAnother) {
  const Stream other = *device->new_stream();
  const Tensor large = made(DType::kFloat32, 64 << 20);
  const Tensor copy = made(DType::kFloat32, 1024);
  CudaSubject subject(*device);
  device->fill_zero(own, large.data(), large.storage()->bytes());
  keep_busy(*device, own, large);
  const std::vector<float> sevens(1024, 7.0f);
  PinnedMemory pinned = *device->allocate_pinned(4096);
  std::memcpy(pinned.data(), sevens.data(), 4096);
  device->upload(own, pinned, 0, large.data(), 4096);
  device->wait(other, device->record(own));
  device->copy(other, Tensor(large.storage(), 0, DType::kFloat32, copy.shape()), copy);
  ASSERT_TRUE(finish(other).ok());
  const std::vector<std::byte> got = subject.read(*copy.storage());
  EXPECT_EQ(std::memcmp(got.data(), sevens.data(), 4096), 0);
}

// A storage is let go while another stream still has to read it, and others are written at once.
TEST_F(CudaDeviceTest, MemoryIsNotUsedAgainBeforeEveryStreamThatUsedItIsDone) {
  const Stream other = *device->new_stream();
  CudaSubject subject(*device);
  constexpr std::int64_t kCount = 4 << 20;
  const Tensor large = made(DType::kFloat32, 64 << 20);
  const Tensor pattern = made(DType::kFloat32, kCount);
  const Tensor result = made(DType::kFloat32, kCount);
  subject.write(*pattern.storage(), std::vector<std::byte>(4 * kCount, std::byte{1}));
  for (int round = 0; round < 3; ++round) {
    {
      const Tensor zeros = made(DType::kFloat32, kCount);
      device->fill_zero(own, zeros.data(), zeros.storage()->bytes());
      device->wait(other, device->record(own));
      keep_busy(*device, other, large);
      device->copy(other, zeros, result);
    }
    for (int i = 0; i < 4; ++i) device->copy(own, pattern, made(DType::kFloat32, kCount));
    ASSERT_TRUE(finish(other).ok());
    device->wait(own, device->record(other));
    const std::vector<std::byte> got = subject.read(*result.storage());
    EXPECT_EQ(std::count(got.begin(), got.end(), std::byte{0}),
              static_cast<std::ptrdiff_t>(got.size()));
  }
}

TEST_F(CudaDeviceTest, MemoryThatIsNotThereIsAnError) {
  const Result<Ref<Storage>> storage = device->allocate(std::size_t{1} << 50);
  ASSERT_FALSE(storage.has_value());
  EXPECT_EQ(storage.error().code(), Code::kOutOfMemory);
  EXPECT_THAT(storage.error().to_string(), HasSubstr("1125899906842624 bytes"));
  EXPECT_TRUE(device->allocate(1024).has_value());
  EXPECT_TRUE(finish(own).ok());
  EXPECT_EQ(device->allocated_bytes(), 0u);
}

TEST_F(CudaDeviceTest, AGpuThatIsNotThereIsAnError) {
  const Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::open(1000);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(opened.error().to_string(), HasSubstr("numbered from 0"));
}

TEST_F(CudaDeviceTest, StoragesWithoutElementsAreOrdinary) {
  const Tensor none = made(DType::kFloat32, 0);
  device->fill_zero(own, none.data(), 0);
  device->add(own, none, none);
  EXPECT_TRUE(finish(own).ok());
}

// Where there is no GPU this is what users see. (With one it has nothing to say, and ci/gpu leaves
// it out.)
TEST(CudaDeviceWithoutAGpu, TheErrorSaysWhatIsMissing) {
  const Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::open(0);
  if (opened) GTEST_SKIP() << "skipped: there is a CUDA device";
  EXPECT_EQ(opened.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(opened.error().to_string(), HasSubstr("CUDA device 0 cannot be used: "));
}

}  // namespace
}  // namespace lockstep
