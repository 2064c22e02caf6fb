// Collectives of ranks that share memory, where the memory is this process's own. The component
// shared-memory has the schedules, and gloo/host_memory_test.cc the bits beside Gloo.
#include "reducer/comm/shared_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "reducer/comm/test_elements.h"

namespace lockstep {
namespace {

using namespace lockstep::testing;  // NOLINT
using End = SharedCollective::End;

constexpr std::size_t kPlace = 4096;

class ThreadSleep final : public SharedRounds::Sleep {
 public:
  void sleep(SharedRounds::Word& bell, std::uint32_t seen) override {
    ++sleeping;
    platform::MutexLock lock(mutex_);
    rung_.wait(mutex_, platform::Deadline::never(), [&] { return bell.load() != seen; });
  }
  void wake(SharedRounds::Word&) override {
    if (before_wake) before_wake();
    platform::MutexLock lock(mutex_);
    rung_.notify_all();
  }

  std::function<void()> before_wake;
  std::atomic<int> sleeping{0};

 private:
  platform::Mutex mutex_{"test.bells"};
  platform::CondVar rung_{"test.bells.rung"};
};

class SharedCollectives : public ::testing::Test {
 protected:
  SharedCollectives() : lines_(SharedRounds::bytes_for(2, kPlace) / sizeof(Line) + 1) {
    auto* const memory = reinterpret_cast<std::byte*>(lines_.data());
    SharedRounds::prepare(memory, 2);
    for (int rank = 0; rank < 2; ++rank)
      rounds_[rank] = std::make_unique<SharedRounds>(memory, rank, 2, kPlace, sleep_);
  }

  // Sums 100 floats on one rank.
  void sum(int rank, bool verify) {
    Waiter waiter;
    waiter.progress = &progress_;
    FrameMemory frames;
    SharedCollective shared(*rounds_[rank], waiter, {}, 1 << 20);
    Elements data = part(DType::kFloat32, rank, 100);
    Collective collective = sum_of(data);
    collective.verify = verify;
    ends_[rank] = shared.run(collective, {1, 0}, frames);
    flaws_[rank] = shared.flaw();
    if (ends_[rank] == End::kDone) expect_total(data, 2);
  }

  // Rank 0 is the first, and sleeps when rank 1 comes.
  void sum_on_both(bool verify) {
    std::thread first([&] { sum(0, verify); });
    while (sleep_.sleeping == 0) std::this_thread::yield();
    sum(1, verify);
    first.join();
  }

  struct alignas(SharedRounds::kAlignment) Line {
    std::byte bytes[SharedRounds::kAlignment];
  };
  std::vector<Line> lines_;
  ThreadSleep sleep_;
  Progress progress_;
  std::unique_ptr<SharedRounds> rounds_[2];
  End ends_[2] = {};
  Flaw flaws_[2];
};

TEST_F(SharedCollectives, EndWellOnBothRanks) {
  for (const bool verify : {false, true}) {
    sleep_.sleeping = 0;
    sum_on_both(verify);
    EXPECT_THAT(ends_, ::testing::Each(End::kDone));
    EXPECT_EQ(flaws_[0].sender, kNone);
  }
}

// A bit changes in what rank 1 has written, before rank 0 wakes up and reads it.
TEST_F(SharedCollectives, F3AChangedBitIsFoundAndItsRankNamed) {
  bool has_changed = false;
  sleep_.before_wake = [&] {
    if (std::exchange(has_changed, true)) return;
    // The frame for rank 0 begins behind the header of the place; its payload behind a seal.
    const auto* const place = rounds_[0]->place_of(1);
    const_cast<std::byte*>(place)[SharedCollective::kHeaderBytes + 64 + 9] ^= std::byte{4};
    rounds_[0]->lose(1);  // Rank 0 ends, and rank 1 would wait for ever.
    rounds_[1]->lose(0);
  };
  sum_on_both(true);
  ASSERT_TRUE(has_changed);
  EXPECT_EQ(ends_[0], End::kCorrupted);
  EXPECT_EQ(flaws_[0].sender, 1);
  EXPECT_THAT(flaws_[0].what, ::testing::HasSubstr("bytes were changed"));
  EXPECT_EQ(ends_[1], End::kLost);
}

}  // namespace
}  // namespace lockstep
