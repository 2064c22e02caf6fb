// What every Device promises about streams, events and memory (device.h), as tests that each device
// instantiates in a file of its own. A fixture type gives the device and what Device has no call
// for:
//
//   struct Fixture {
//     static void run(const std::function<void(DeviceUnderTest&)>& body);  // may skip the test
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Name, DeviceConformance, Fixture);
//
// The programs are right ones, so they say nothing of what a device makes of wrong ones.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "reducer/device/device.h"

namespace lockstep::inline LOCKSTEP_NS {

class DeviceUnderTest {
 public:
  virtual ~DeviceUnderTest() = default;
  virtual Device& device() = 0;
  // Another than the current one, where the device has several; the same one each time.
  virtual Stream other_stream() = 0;
  // In the order of the stream; read() waits for it.
  virtual void write(const Stream& stream, const Tensor& to, const std::vector<float>& values) = 0;
  virtual std::vector<float> read(const Stream& stream, const Tensor& from) = 0;

  Stream own() { return device().current_stream(); }
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
    on.device().wait(on.other_stream(), event);  // one that has passed
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
      on.device().gather(on.own(), transfers, 0.25);
      on.device().fill_zero(on.own(), gradient.data(), 200);
      on.device().scatter(on.own(), transfers);
      transfers.assign(1, Transfer{});
    }
    EXPECT_EQ(on.read(on.own(), gradient), std::vector<float>(50, 2));
  });
}

// Memory that is let go right behind the last work on it, on the stream that it belongs to, is not
// used again before that work is done.
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
                            StoragesAreAlignedApartAndCounted);

}  // namespace lockstep::inline LOCKSTEP_NS
