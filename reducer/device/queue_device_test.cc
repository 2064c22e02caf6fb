// QueueDevice does what every Device promises, and keeps the host out of its memory. So the tests
// that run on it prove that the tested code does not touch a GPU's memory from the host.
#include <gtest/gtest.h>

#include <csignal>

#include "reducer/device/test_device_conformance.h"
#include "reducer/device/test_queue_device.h"

namespace lockstep::testing {
namespace {

struct QueueDeviceFixture {
  static void run(const std::function<void(DeviceUnderTest&)>& body) {
    QueueDevice device;
    DeviceUnderTest subject(device, *device.new_stream());
    body(subject);
  }
};

constexpr std::chrono::seconds kGenerous{60};

// The signal handlers of the sanitizers would end the program otherwise.
void let_signals_kill() { std::signal(SIGSEGV, SIG_DFL); }

TEST(QueueDeviceDeathTest, TheHostThatTouchesItsMemoryIsKilled) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto with_memory = [](const auto& body) {
    let_signals_kill();
    QueueDevice device;
    const Ref<Storage> storage = *device.allocate(64);
    body(*const_cast<volatile std::byte*>(storage->data()));
    std::_Exit(0);
  };
  EXPECT_EXIT(with_memory([](volatile std::byte& first) { static_cast<void>(std::byte(first)); }),
              ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(with_memory([](volatile std::byte& first) { first = std::byte{1}; }),
              ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(with_memory([](volatile std::byte&) {}), ::testing::ExitedWithCode(0), "");
}

TEST(QueueDeviceDeathTest, AnOperationOnMemoryOfTheHostEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        QueueDevice device;
        std::byte host[8];
        device.fill_zero(device.current_stream(), host, sizeof host);
      },
      "offset");
}

TEST(QueueDevice, WhoPlaysTheGpuReachesWhatTheHostCopiesThere) {
  QueueDevice device;
  const Ref<Storage> storage = *device.allocate(4);
  const float value = 3;
  const platform::Deadline deadline = platform::Deadline::in(kGenerous);
  ASSERT_TRUE(write(device, std::as_bytes(std::span(&value, 1)), storage->data(), deadline).ok());
  float there = 0;
  std::memcpy(&there, device.reach(storage->data()), sizeof there);
  EXPECT_EQ(there, 3);
}

// The same as of a CudaDevice: whoever deletes the device does not wait for what never ends.
TEST(QueueDevice, ADeviceThatWasLeftToTheProcessIsNotDestroyedWithItsStreams) {
  platform::Mutex mutex{"test"};
  platform::CondVar changed{"test"};
  bool may_end = false;
  bool has_ended = false;
  auto owned = std::make_unique<QueueDevice>();
  QueueDevice* const device = owned.get();
  Ref<Storage> storage = *device->allocate(1);
  QueueDevice::submit(device->native(device->current_stream()), [&, data = storage->data()] {
    const platform::MutexLock lock(mutex);
    changed.wait(mutex, platform::Deadline::in(kGenerous), [&] { return may_end; });
    *device->reach(data) = std::byte{1};
    has_ended = may_end;
    changed.notify_all();
  });
  device->leave_to_process();
  std::unique_ptr<Device>(std::move(owned)).reset();  // It would wait for the stream here.
  platform::MutexLock lock(mutex);
  may_end = true;
  changed.notify_all();
  EXPECT_TRUE(changed.wait(mutex, platform::Deadline::in(kGenerous), [&] { return has_ended; }));
  lock.unlock();
  EXPECT_EQ(*device->reach(storage->data()), std::byte{1});
  storage = {};
  device->~QueueDevice();  // for the tools that look for leaks
  ::operator delete(device);
}

}  // namespace
}  // namespace lockstep::testing

namespace lockstep {
INSTANTIATE_TYPED_TEST_SUITE_P(QueueDevice, DeviceConformance, testing::QueueDeviceFixture);
}  // namespace lockstep
