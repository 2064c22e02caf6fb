// What every Device promises about streams, events and memory (device.h), as tests that each device
// instantiates in a file of its own. A fixture type provides the device:
//
//   struct Fixture {
//     static void run(const std::function<void(DeviceUnderTest&)>& body);  // may skip the test
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Name, DeviceConformance, Fixture);
//
// The programs are correct, so they do not test what a device does with wrong ones.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class DeviceUnderTest {
 public:
  // `other` is another stream than the current one, where the device has several.
  DeviceUnderTest(Device& device, const Stream& other) : device_(device), other_(other) {}
  DeviceUnderTest(const DeviceUnderTest&) = delete;
  DeviceUnderTest& operator=(const DeviceUnderTest&) = delete;
  ~DeviceUnderTest() {
    EXPECT_TRUE(finish(own()).ok());
    EXPECT_TRUE(finish(other_).ok());
  }
  Device& device() { return device_; }
  Stream own() { return device().current_stream(); }
  Stream other_stream() { return other_; }

  PinnedMemory pinned(std::size_t floats) {
    return *device().allocate_pinned(floats * sizeof(float));
  }
  static PinnedMemory& fill(PinnedMemory& memory, const std::vector<float>& values) {
    memory.write(0, values.data(), values.size() * sizeof(float));
    return memory;
  }
  static std::vector<float> values_of(const PinnedMemory& memory) {
    std::vector<float> values(memory.bytes() / sizeof(float));
    memory.read(0, values.data(), memory.bytes());
    return values;
  }
  // Writes in the order of the stream; read() waits for it.
  void write(const Stream& stream, const Tensor& to, const std::vector<float>& values) {
    kept_.push_back(pinned(values.size()));
    device().upload(stream, fill(kept_.back(), values), 0, to.data(), kept_.back().bytes());
  }
  std::vector<float> read(const Stream& stream, const Tensor& from) {
    const PinnedMemory memory = pinned(static_cast<std::size_t>(from.elements()));
    device().download(stream, from.data(), memory, 0, memory.bytes());
    EXPECT_TRUE(finish(stream).ok());
    return values_of(memory);
  }

  Tensor made(std::int64_t elements) {
    return *Tensor::empty(device(), DType::kFloat32, Shape::row_major({elements}));
  }
  void order(const Stream& first, const Stream& second) {
    device().wait(second, device().record(first));
  }
  Status finish(const Stream& stream) {
    return device().synchronize(device().record(stream),
                                platform::Deadline::in(std::chrono::seconds(60)));
  }

 private:
  Device& device_;
  const Stream other_;
  std::vector<PinnedMemory> kept_;  // Memory that may still be read.
};

template <class Fixture>
class DeviceConformance : public ::testing::Test {};
TYPED_TEST_SUITE_P(DeviceConformance);

TYPED_TEST_P(DeviceConformance, AStreamKeepsTheOrderOfItsWork) {
  TypeParam::run([](DeviceUnderTest& on) {
    const Tensor a = on.made(100);
    const Tensor b = on.made(100);
    on.write(on.own(), a, std::vector<float>(100, 3));
    on.device().copy(on.own(), a, b);
    for (int i = 0; i < 10; ++i) on.device().add(on.own(), a, b);
    on.device().fill_zero(on.own(), a.data(), 400);
    EXPECT_EQ(on.read(on.own(), b), std::vector<float>(100, 33));
    EXPECT_EQ(on.read(on.own(), a), std::vector<float>(100, 0));
  });
}

TYPED_TEST_P(DeviceConformance, AnEventOrdersStreams) {
  TypeParam::run([](DeviceUnderTest& on) {
    const Stream other = on.other_stream();
    const Tensor a = on.made(1000);
    const Tensor b = on.made(1000);
    on.write(on.own(), a, std::vector<float>(1000, 1));
    on.device().fill_zero(on.own(), b.data(), 4000);
    for (int i = 0; i < 20; ++i) {
      on.order(on.own(), other);
      on.device().add(other, a, b);
      on.order(other, on.own());
      on.device().add(on.own(), a, b);
    }
    EXPECT_EQ(on.read(on.own(), b), std::vector<float>(1000, 40));
  });
}

TYPED_TEST_P(DeviceConformance, AnEventCanBeWaitedForAgainAndByMany) {
  TypeParam::run([](DeviceUnderTest& on) {
    const Tensor a = on.made(10);
    on.write(on.own(), a, std::vector<float>(10, 1));
    const Event event = on.device().record(on.own());
    on.device().wait(on.other_stream(), event);
    on.device().wait(on.other_stream(), event);
    const platform::Deadline deadline = platform::Deadline::in(std::chrono::seconds(60));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(on.device().synchronize(event, deadline).ok());
    on.device().wait(on.other_stream(), event);  // This event has passed.
    EXPECT_TRUE(on.finish(on.other_stream()).ok());
  });
}

TYPED_TEST_P(DeviceConformance, TheEmptyEventIsComplete) {
  TypeParam::run([](DeviceUnderTest& on) {
    on.device().wait(on.own(), Event{});
    EXPECT_TRUE(on.device().synchronize(Event{}, platform::Deadline::never()).ok());
    EXPECT_TRUE(on.finish(on.own()).ok());
  });
}

TYPED_TEST_P(DeviceConformance, WhatATransferPointsToMayGoOnceItIsSubmitted) {
  TypeParam::run([](DeviceUnderTest& on) {
    const Tensor gradient = on.made(50);
    const Tensor bucket = on.made(50);
    on.write(on.own(), gradient, std::vector<float>(50, 8));
    {
      const Tensor handle = gradient;
      const Shape order = Shape::row_major({50});
      std::vector<Transfer> transfers{{&handle, bucket.data(), &order}};
      on.device().pack_bucket(on.own(), transfers, 0.25);
      on.device().fill_zero(on.own(), gradient.data(), 200);
      on.device().unpack_bucket(on.own(), transfers);
      transfers.assign(1, Transfer{});
    }
    EXPECT_EQ(on.read(on.own(), gradient), std::vector<float>(50, 2));
  });
}

// Memory that is released right behind the last work on it, on the stream that it belongs to, is
// not used again before that work is done.
TYPED_TEST_P(DeviceConformance, AStorageMayGoBehindTheWorkOfItsOwnStream) {
  TypeParam::run([](DeviceUnderTest& on) {
    const Tensor sum = on.made(5000);
    on.device().fill_zero(on.own(), sum.data(), 20000);
    for (int i = 1; i <= 20; ++i) {
      const Tensor part = on.made(5000);
      on.write(on.own(), part, std::vector<float>(5000, static_cast<float>(i)));
      on.device().add(on.own(), part, sum);
    }
    EXPECT_EQ(on.read(on.own(), sum), std::vector<float>(5000, 210));
  });
}

// The same on another stream, where that use is noted.
TYPED_TEST_P(DeviceConformance, AStorageMayGoBeforeANotedStreamIsDoneWithIt) {
  TypeParam::run([](DeviceUnderTest& on) {
    const Stream other = on.other_stream();
    const Tensor sum = on.made(5000);
    on.device().fill_zero(on.own(), sum.data(), 20000);
    for (int i = 1; i <= 20; ++i) {
      const Tensor part = on.made(5000);
      on.write(on.own(), part, std::vector<float>(5000, static_cast<float>(i)));
      on.order(on.own(), other);
      on.device().note_use(other, part.data());
      on.device().add(other, part, sum);
    }
    EXPECT_EQ(on.read(other, sum), std::vector<float>(5000, 210));
  });
}

// If the device gave pinned memory to two owners, the values would be mixed up.
TYPED_TEST_P(DeviceConformance, PinnedMemoryIsItsOwnersUntilItIsReleased) {
  TypeParam::run([](DeviceUnderTest& on) {
    constexpr std::size_t kMany = 2000;
    const auto of = [](int value) { return std::vector<float>(kMany, static_cast<float>(value)); };
    PinnedMemory first = on.pinned(kMany);
    PinnedMemory second = on.pinned(kMany);
    on.fill(first, of(1));
    on.fill(second, of(2));
    for (int round = 3; round < 6; ++round) {
      EXPECT_EQ(on.values_of(first), of(1));
      EXPECT_EQ(on.values_of(second), of(round - 1));
      second = PinnedMemory();  // This returns the memory to the device.
      second = on.pinned(kMany);
      on.fill(second, of(round));
    }
  });
}

TYPED_TEST_P(DeviceConformance, CopiesBothWaysKeepTheOrderOfTheirStreams) {
  TypeParam::run([](DeviceUnderTest& on) {
    const Stream other = on.other_stream();
    PinnedMemory memory = on.pinned(1000);
    on.fill(memory, std::vector<float>(1000, 3));
    const Tensor a = on.made(500);
    const Tensor b = on.made(500);
    // The first half goes to the GPU, comes back doubled as the second half, and that goes there
    // again.
    on.device().upload(on.own(), memory, 0, a.data(), 2000);
    on.device().copy(on.own(), a, b);
    on.device().add(on.own(), a, b);
    on.device().download(on.own(), b.data(), memory, 2000, 2000);
    on.order(on.own(), other);
    on.device().upload(other, memory, 2000, a.data(), 2000);
    on.device().add(other, b, a);
    on.device().download(other, a.data(), memory, 0, 2000);
    EXPECT_TRUE(on.finish(other).ok());
    std::vector<float> expected(500, 12);
    expected.resize(1000, 6);
    EXPECT_EQ(on.values_of(memory), expected);
  });
}

TYPED_TEST_P(DeviceConformance, AnAllocationThatIsRefusedLeavesTheDeviceAsItWas) {
  TypeParam::run([](DeviceUnderTest& on) {
    const std::uint64_t before = on.device().allocated_bytes();
    const Result<Ref<Storage>> storage = on.device().allocate(std::size_t{1} << 50);
    ASSERT_FALSE(storage.has_value());
    EXPECT_EQ(storage.error().code(), Code::kOutOfMemory);
    EXPECT_EQ(on.device().allocated_bytes(), before);
    const Tensor a = on.made(10);
    on.write(on.own(), a, std::vector<float>(10, 7));
    EXPECT_EQ(on.read(on.own(), a), std::vector<float>(10, 7));
  });
}

TYPED_TEST_P(DeviceConformance, StoragesAreAlignedApartAndCounted) {
  TypeParam::run([](DeviceUnderTest& on) {
    const std::uint64_t before = on.device().allocated_bytes();
    {
      const Tensor a = on.made(3);
      const Tensor b = on.made(3);
      const Tensor none = on.made(0);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % 64, 0u);
      EXPECT_NE(a.data(), b.data());
      EXPECT_NE(none.data(), nullptr);
      EXPECT_EQ(on.device().allocated_bytes(), before + 24);
      on.device().fill_zero(on.own(), none.data(), 0);
      on.device().add(on.own(), none, none);
      EXPECT_TRUE(on.finish(on.own()).ok());
    }
    EXPECT_EQ(on.device().allocated_bytes(), before);
  });
}

REGISTER_TYPED_TEST_SUITE_P(DeviceConformance, AStreamKeepsTheOrderOfItsWork, AnEventOrdersStreams,
                            AnEventCanBeWaitedForAgainAndByMany, TheEmptyEventIsComplete,
                            WhatATransferPointsToMayGoOnceItIsSubmitted,
                            AStorageMayGoBehindTheWorkOfItsOwnStream,
                            AStorageMayGoBeforeANotedStreamIsDoneWithIt,
                            PinnedMemoryIsItsOwnersUntilItIsReleased,
                            CopiesBothWaysKeepTheOrderOfTheirStreams,
                            AnAllocationThatIsRefusedLeavesTheDeviceAsItWas,
                            StoragesAreAlignedApartAndCounted);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
