#include "faults/played_gpu/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "faults/played_gpu/gpu.h"
#include "faults/played_gpu/memory.h"

namespace lockstep::played {
namespace {

using ::testing::ElementsAre;

// Holds a stream until it is let go.
class Gate {
 public:
  void hold(Queue& queue) {
    submit(queue, [this] {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_open_; });
    });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

TEST(PlayedStream, WorkRunsInItsOrderBehindTheCall) {
  Queue& queue = *Queue::make();
  Gate gate;
  gate.hold(queue);
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) submit(queue, [&order, i] { order.push_back(i); });
  EXPECT_TRUE(order.empty());  // nothing has run
  gate.open();
  drain(queue);
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  queue.give_up();
}

TEST(PlayedStream, AStreamThatIsGivenUpDoesWhatWasSubmitted) {
  Queue& queue = *Queue::make();
  Gate gate;
  gate.hold(queue);
  std::atomic<bool> has_run = false;
  Marker marker;
  submit(queue, [&] { has_run = true; });
  marker.record(queue);
  queue.give_up();
  gate.open();
  marker.wait();
  EXPECT_TRUE(has_run);
}

TEST(PlayedStream, OneThatNeverWorkedCanBeGivenUp) { Queue::make()->give_up(); }

TEST(PlayedEvent, HasPassedWhenTheStreamHasReachedIt) {
  Queue& queue = *Queue::make();
  Marker marker;
  EXPECT_TRUE(marker.has_passed());  // as in CUDA: it was never recorded
  Gate gate;
  gate.hold(queue);
  marker.record(queue);
  EXPECT_FALSE(marker.has_passed());
  gate.open();
  marker.wait();
  EXPECT_TRUE(marker.has_passed());
  queue.give_up();
}

TEST(PlayedEvent, AStreamWaitsForTheRecordBeforeTheCall) {
  Queue& first = *Queue::make();
  Queue& second = *Queue::make();
  Gate gate;
  Gate later;
  Marker marker;
  gate.hold(first);
  std::atomic<int> done = 0;
  submit(first, [&] { done = 1; });
  marker.record(first);
  marker.hold(second);
  std::atomic<int> seen = -1;
  submit(second, [&] { seen = done.load(); });
  // A second record, which the stream does not wait for.
  later.hold(first);
  marker.record(first);
  gate.open();
  drain(second);
  EXPECT_EQ(seen, 1);
  EXPECT_FALSE(marker.has_passed());
  later.open();
  marker.wait();
  first.give_up();
  second.give_up();
}

// NCCL records one event on many streams.
TEST(PlayedEvent, ARecordOnAnotherStreamReleasesNobodyWhoWaitsForTheFirst) {
  Queue& busy = *Queue::make();
  Queue& idle = *Queue::make();
  Queue& waiting = *Queue::make();
  Gate gate;
  Marker marker;
  gate.hold(busy);
  std::atomic<bool> is_done = false;
  submit(busy, [&] { is_done = true; });
  marker.record(busy);
  marker.hold(waiting);
  std::atomic<bool> was_done = true;
  submit(waiting, [&] { was_done = is_done.load(); });
  marker.record(idle);
  marker.wait();  // for the second record alone
  EXPECT_FALSE(is_done);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // in which nothing may happen
  gate.open();
  drain(waiting);
  EXPECT_TRUE(was_done);
  for (Queue* each : {&busy, &idle, &waiting}) each->give_up();
}

TEST(PlayedMemory, IsPoisonedAndKnown) {
  Memory memory;
  std::byte* const data = memory.allocate(MemoryKind::kPinned, 100);
  EXPECT_EQ(data[0], std::byte{0xff});
  EXPECT_EQ(data[99], std::byte{0xff});
  EXPECT_TRUE(memory.owns(data + 99));
  EXPECT_FALSE(memory.owns(data - 1));
  EXPECT_EQ(memory.kind_of(data + 5), MemoryKind::kPinned);
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  EXPECT_TRUE(memory.find(data + 7, &begin, &bytes));
  EXPECT_EQ(begin, data);
  EXPECT_EQ(bytes, 100u);
  EXPECT_EQ(memory.allocated_bytes(), 100u);
  EXPECT_FALSE(memory.release(data + 1));
  EXPECT_TRUE(memory.release(data));
  EXPECT_FALSE(memory.owns(data));
  EXPECT_EQ(memory.allocated_bytes(), 0u);
}

std::size_t resident_pages() {
  std::size_t all = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident;
}

TEST(PlayedMemory, OfAReserveNothingIsTouched) {
  Memory memory;
  const std::size_t before = resident_pages();
  constexpr std::size_t kReserve = std::size_t{512} << 20;
  std::byte* const data = memory.allocate(MemoryKind::kDevice, kReserve);
  ASSERT_NE(data, nullptr);
  memory.fill(data, 0, kReserve);
  EXPECT_LT(resident_pages() - before, 1000u);
  memory.fill(data, 7, 100);
  EXPECT_EQ(data[99], std::byte{7});
  memory.fill(data, 0, kReserve);
  EXPECT_EQ(data[0], std::byte{0});
  EXPECT_EQ(data[99], std::byte{0});
  EXPECT_TRUE(memory.release(data));
}

TEST(PlayedGpu, ItsBusAddressIsNobodysHere) {
  EXPECT_EQ(bus_id().size(), 12u);
  EXPECT_EQ(bus_id(), bus_id());
}

}  // namespace
}  // namespace lockstep::played
