// SimDevice: order and what is found where it is missing, memory, failures.
#include "faults/sim/device/sim_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <set>

#include "faults/sim/device/test_device_run.h"
#include "faults/sim/scheduler/test_leaks.h"
#include "reducer/device/grow.h"

namespace lockstep::simulated {
namespace {

using platform::Deadline;
using simulation::End;
using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

// The findings of a program are the same ones, as many, in each of some schedules.
std::string found(const std::function<void(Bench&)>& body, const DeviceOptions& options = {}) {
  const std::string first = run_on_device(body, options).text();
  for (const simulation::Schedule& schedule : many_schedules(10)) {
    const Seen seen = run_on_device(schedule, options, body);
    EXPECT_EQ(seen.end, End::kFinished);
    EXPECT_EQ(seen.text(), first) << "policy " << +static_cast<int>(schedule.policy) << " seed "
                                  << schedule.seed;
  }
  return first;
}

TEST(SimDevice, TheHostGoesOnBeforeWhatItSubmittedHasRun) {
  int early = 0;
  for (const simulation::Schedule& schedule : many_schedules(20))
    run_on_device(schedule, {}, [&](Bench& on) {
      bool has_run = false;
      on.device.submit(on.s1, "kernel", {}, [&] { has_run = true; });
      early += has_run ? 0 : 1;
      EXPECT_TRUE(on.finish(on.s1).ok());
      EXPECT_TRUE(has_run);
    });
  EXPECT_GT(early, 10);
}

// A job makes a group after the other, each with streams of its own.
TEST(SimDevice, AStreamThatIsGivenBackIsTheNextOne) {
  const Seen seen = run_on_device([](Bench& on) {
    const std::size_t before = on.device.streams_in_use();
    const Stream kept = *on.device.new_stream();
    std::string ran;
    for (int i = 0; i < 200; ++i) {
      const Stream stream = *on.device.new_stream();
      EXPECT_NE(stream.handle, kept.handle);
      on.device.submit(stream, "kernel", {}, [&ran] { ran += 'x'; });
      EXPECT_TRUE(on.finish(stream).ok());
      on.device.give_back(stream);
    }
    EXPECT_EQ(ran, std::string(200, 'x'));
    EXPECT_EQ(on.device.streams_in_use(), before + 1);
  });
  EXPECT_EQ(seen.end, End::kFinished);
}

TEST(SimDevice, StreamsRunInEveryOrderAndEachInItsOwn) {
  std::set<std::string> orders;
  for (const simulation::Schedule& schedule : many_schedules(50))
    run_on_device(schedule, {}, [&](Bench& on) {
      std::string order;
      for (const char name : {'a', 'b'})
        on.device.submit(on.s1, "kernel", {}, [&order, name] { order += name; });
      on.device.submit(on.s2, "kernel", {}, [&order] { order += 'x'; });
      on.finish(on.s1).ignore();
      on.finish(on.s2).ignore();
      orders.insert(order);
    });
  EXPECT_EQ(orders, (std::set<std::string>{"abx", "axb", "xab"}));
}

TEST(SimDevice, OneStreamIsAnOrder) {
  EXPECT_EQ(found([](Bench& on) {
              const Tensor a = on.made("a");
              on.set(on.s0, a, 1);
              on.reduce(on.s0, a);
            }),
            "");
}

TEST(SimDevice, AnEventIsAnOrder) {
  const auto program = [](bool waits) {
    return found([waits](Bench& on) {
      const Tensor a = on.made("a");
      on.set(on.s0, a, 1, "backward");
      if (waits) on.order(on.s0, on.s1);
      on.reduce(on.s1, a);
      on.order(on.s1, on.s0);
    });
  };
  EXPECT_EQ(program(true), "");
  EXPECT_EQ(program(false),
            "race: stream 0 #1 backward writes a [0, 64), and in no order with it stream 1 #1 "
            "all_reduce writes a [0, 64)\n");
}

TEST(SimDevice, SynchronizingIsAnOrderForTheHostAndForWhatItSubmitsLater) {
  const auto program = [](bool waits) {
    return found([waits](Bench& on) {
      const Tensor a = on.made("a");
      on.set(on.s1, a, 1);
      if (waits) {
        EXPECT_TRUE(on.finish(on.s1).ok());
        EXPECT_TRUE(on.holds(a, 1));
      }
      on.set(on.s0, a, 2);
      on.finish(on.s1).ignore();
      on.finish(on.s0).ignore();
    });
  };
  EXPECT_EQ(program(true), "");
  EXPECT_THAT(program(false), HasSubstr("stream 1 #1 kernel writes a [0, 64), and in no order"));
}

TEST(SimDevice, AHostThatLooksTooEarlyIsNamed) {
  EXPECT_THAT(found([](Bench& on) {
                const Tensor a = on.made("a");
                on.set(on.s0, a, 1);
                on.holds(a, 1);
              }),
              HasSubstr("host thread rank 0 #1 read reads a [0, 64)"));
}

TEST(SimDevice, ARaceIsFoundThoughTheValueIsRight) {
  int right = 0;
  for (const simulation::Schedule& schedule : many_schedules(50)) {
    bool is_right = false;
    const Seen seen = run_on_device(schedule, {}, [&](Bench& on) {
      const Tensor a = on.made("a");
      on.set(on.s0, a, 3);
      on.finish(on.s1).ignore();  // the wrong stream: time passes, and nothing is put in order
      platform::yield();
      is_right = on.holds(a, 3);
    });
    EXPECT_EQ(seen.findings.size(), 1u);
    right += is_right ? 1 : 0;
  }
  EXPECT_GT(right, 0);
  EXPECT_LT(right, 102);
}

TEST(SimDevice, OrderGoesOnOverSeveralStreams) {
  const auto program = [](bool second) {
    return found([second](Bench& on) {
      const Tensor a = on.made("a");
      on.set(on.s0, a, 1);
      on.order(on.s0, on.s1);
      if (second) on.order(on.s1, on.s2);
      on.reduce(on.s2, a);
      on.order(on.s2, on.s0);
    });
  };
  EXPECT_EQ(program(true), "");
  EXPECT_THAT(program(false), HasSubstr("race: stream 0 #1 kernel"));
}

TEST(SimDevice, AnEventCoversWhatWasBeforeItAndNothingAfter) {
  EXPECT_THAT(found([](Bench& on) {
                const Tensor a = on.made("a");
                const Tensor b = on.made("b");
                on.set(on.s0, a, 1);
                const Event event = on.device.record(on.s0);
                on.set(on.s0, b, 1);
                on.device.wait(on.s1, event);
                on.reduce(on.s1, a);
                on.reduce(on.s1, b);
                on.order(on.s1, on.s0);
              }),
              AllOf(HasSubstr("stream 0 #3 kernel writes b"), ::testing::Not(HasSubstr(" a ["))));
}

TEST(SimDevice, ReadsConflictWithWritesAndNotWithReads) {
  const auto program = [](bool writes) {
    return found([writes](Bench& on) {
      const Tensor a = on.made("a");
      const Tensor b = on.made("b");
      const Tensor c = on.made("c");
      on.set(on.s0, a, 1);
      on.order(on.s0, on.s1);
      on.order(on.s0, on.s2);
      on.device.copy(on.s1, a, b);
      on.device.copy(on.s2, a, c);
      if (writes) on.set(on.s2, a, 2, "next step");
      on.order(on.s1, on.s0);
      on.order(on.s2, on.s0);
    });
  };
  EXPECT_EQ(program(false), "");
  EXPECT_EQ(program(true),
            "race: stream 1 #2 copy reads a [0, 64), and in no order with it stream 2 #3 next step "
            "writes a [0, 64)\n");
}

TEST(SimDevice, RangesThatDoNotMeetAreInNoConflict) {
  const auto program = [](std::size_t bytes) {
    return found([bytes](Bench& on) {
      const Tensor a = on.made("a");
      on.device.fill_zero(on.s1, a.data(), bytes);
      on.device.fill_zero(on.s2, a.data() + 32, 32);
      on.order(on.s1, on.s0);
      on.order(on.s2, on.s0);
    });
  };
  EXPECT_EQ(program(32), "");
  EXPECT_THAT(program(33), HasSubstr("a [0, 33), and in no order"));
}

TEST(SimDevice, InterleavedViewsAreInNoConflict) {
  const auto program = [](std::int64_t offset) {
    return found([offset](Bench& on) {
      const Tensor a = on.made("a");
      const Tensor from = on.made("from", 8);
      Shape even = Shape::row_major({8});
      even.strides[0] = 2;
      on.set(on.s0, from, 1);
      on.order(on.s0, on.s1);
      on.order(on.s0, on.s2);
      on.device.copy(on.s1, from, Tensor(a.storage(), 0, DType::kFloat32, even));
      on.device.copy(on.s2, from, Tensor(a.storage(), offset, DType::kFloat32, even));
      on.order(on.s1, on.s0);
      on.order(on.s2, on.s0);
    });
  };
  EXPECT_EQ(program(1), "");
  EXPECT_THAT(program(0), HasSubstr("race"));
}

// --- Memory.

TEST(SimDevice, NewAndReleasedMemoryIsPoison) {
  run_on_device([](Bench& on) {
    const std::byte* data = nullptr;
    {
      const Tensor a = on.made("a");
      data = a.data();
      EXPECT_TRUE(is_poison({data, 64}));
      on.set(on.s0, a, 1);
    }
    EXPECT_TRUE(on.finish(on.s0).ok());
    EXPECT_TRUE(is_poison({data, 64}));
    float value = 0;
    std::memcpy(&value, data, sizeof(value));
    EXPECT_NE(value, value);
  });
}

TEST(SimDevice, TheHomeStreamUsesItsMemoryAgainAtOnce) {
  EXPECT_EQ(found([](Bench& on) {
              const std::byte* first = nullptr;
              {
                const Tensor a = on.made("a");
                first = a.data();
                on.set(on.s0, a, 1);
              }
              const Tensor b = on.made("b");
              EXPECT_EQ(b.data(), first);
              on.set(on.s0, b, 2);
              const StreamGuard guard(on.s1);
              EXPECT_NE(on.made("c").data(), first);
            }),
            "");
}

// Another stream reads what is released: found, unless it was noted; then the memory is not used
// again before that stream is done, and the value is right in every schedule.
TEST(SimDevice, MemoryThatAnotherStreamStillReadsIsFoundUnlessItWasNoted) {
  enum class How { kForgotten, kNoted, kByItself };
  const auto program = [](How how) {
    DeviceOptions options;
    if (how == How::kByItself) options.uses = Uses::kNoted;
    return found(
        [how](Bench& on) {
          const Tensor result = on.made("result");
          {
            const Tensor a = on.made("a");
            on.set(on.s0, a, 1);
            on.order(on.s0, on.s1);
            if (how == How::kNoted) on.device.note_use(on.s1, a.data());
            on.device.copy(on.s1, a, result);
          }
          const Tensor next = on.made("next");
          on.set(on.s0, next, 7);
          EXPECT_TRUE(on.finish(on.s1).ok());
          const bool is_right = on.holds(result, 1);
          EXPECT_TRUE(is_right || how == How::kForgotten);
        },
        options);
  };
  EXPECT_EQ(program(How::kNoted), "");
  EXPECT_EQ(program(How::kByItself), "");
  EXPECT_THAT(program(How::kForgotten),
              HasSubstr("copy reads a [0, 64), and in no order with it stream 0 #3 release"));
}

TEST(SimDevice, NotedMemoryComesBackWhenItsUsersAreDoneAndIsInOrderThen) {
  DeviceOptions options;
  options.duration = [](const Stream&, std::string_view, std::size_t) { return 10us; };
  EXPECT_EQ(found(
                [](Bench& on) {
                  const std::byte* first = nullptr;
                  {
                    const Tensor a = on.made("a");
                    first = a.data();
                    on.device.note_use(on.s1, a.data());
                    on.set(on.s1, a, 1);
                  }
                  const Tensor early = on.made("early");
                  EXPECT_NE(early.data(), first);
                  simulation::Scheduler::running()->sleep_until(20us);
                  const Tensor late = on.made("late");
                  EXPECT_EQ(late.data(), first);
                  on.set(on.s0, late, 2);
                  EXPECT_TRUE(on.finish(on.s0).ok());
                  EXPECT_TRUE(on.holds(late, 2));
                },
                options),
            "");
}

// What is of no bytes may lie at the end of one block, and there another one may begin: then it
// depended on where the blocks lay what was waited for.
TEST(SimDevice, AnOperationWithoutBytesUsesNoMemory) {
  DeviceOptions options;
  options.uses = Uses::kNoted;
  options.duration = [](const Stream&, std::string_view, std::size_t) { return 10us; };
  for (const std::size_t bytes : {0u, 4u}) {
    EXPECT_EQ(found(
                  [bytes](Bench& on) {
                    const std::byte* first = nullptr;
                    {
                      const Tensor a = on.made("a");
                      first = a.data();
                      on.device.fill_zero(on.s1, a.data(), bytes);
                    }
                    EXPECT_EQ(on.made("next").data() == first, bytes == 0);
                  },
                  options),
              "");
  }
}

TEST(SimDevice, TheFirstUseThatIsNotedWaitsForTheHomeAndTheSecondDoesNot) {
  const auto program = [](Uses uses, bool twice) {
    DeviceOptions options;
    options.uses = uses;
    return found(
        [twice](Bench& on) {
          const Tensor a = on.made("a");
          on.set(on.s0, a, 1, "first");
          on.reduce(on.s1, a);
          on.order(on.s1, on.s0);
          if (!twice) return;
          on.set(on.s0, a, 1, "second");
          on.reduce(on.s1, a);
          on.order(on.s1, on.s0);
        },
        options);
  };
  EXPECT_EQ(program(Uses::kNoted, false), "");
  EXPECT_THAT(program(Uses::kDeclared, false), HasSubstr("first writes a"));
  EXPECT_THAT(program(Uses::kNoted, true), HasSubstr("second writes a"));
}

TEST(SimDevice, WhatIsSubmittedOnReleasedMemoryIsFound) {
  EXPECT_THAT(found([](Bench& on) {
                std::byte* data = on.made("a").data();
                on.device.fill_zero(on.s0, data, 64);
              }),
              HasSubstr("freed memory: after stream 0 #1 release writes a [0, 64), stream 0 #2"));
}

TEST(SimDevice, WhatIsNotTheDevicesIsFoundAndLeftAlone) {
  std::vector<std::byte> mine(64, std::byte{5});
  EXPECT_THAT(found([&](Bench& on) {
                on.device.fill_zero(on.s0, mine.data(), 64);
                const Tensor a = on.made("a");
                on.device.fill_zero(on.s0, a.data(), 65);
              }),
              AllOf(HasSubstr("foreign memory: stream 0 #1 fill_zero writes 64 bytes"),
                    HasSubstr("stream 0 #2 fill_zero writes 65 bytes")));
  EXPECT_EQ(mine, std::vector<std::byte>(64, std::byte{5}));
}

TEST(SimDevice, CopiesFromPageableMemoryAreTakenAtOnceAndFromPinnedMemoryLater) {
  const auto program = [](bool is_pinned) {
    return found([is_pinned](Bench& on) {
      const Tensor a = on.made("a", 2);
      std::vector<std::byte> pageable(8);
      const PinnedMemory pinned = *on.device.allocate_pinned(8);
      std::byte* host = is_pinned ? pinned.data() : pageable.data();
      const std::array<float, 2> ones{1, 1};
      const std::array<float, 2> zeros{0, 0};
      std::memcpy(host, ones.data(), 8);
      on.device.upload(on.s0, host, a.data(), 8);
      if (is_pinned) on.device.host_write(host, std::as_bytes(std::span(zeros)), "zero");
      if (!is_pinned) std::memcpy(host, zeros.data(), 8);
      EXPECT_TRUE(on.finish(on.s0).ok());
      const bool is_right = on.holds(a, 1);
      EXPECT_TRUE(is_right || is_pinned);
      on.device.download(on.s0, a.data(), pageable.data(), 8);  // waits
      EXPECT_TRUE(is_pinned || std::memcmp(pageable.data(), ones.data(), 8) == 0);
    });
  };
  EXPECT_EQ(program(false), "");
  EXPECT_THAT(program(true), HasSubstr("upload reads pinned memory 1 [0, 8), and in no order with "
                                       "it host thread rank 0 #1 zero writes"));
}

// S01, by the ways that production code takes.
TEST(SimDevice, TheHostsWaysIntoPinnedMemoryAreSeenUnlessTheyWaitForTheCopy) {
  const auto program = [](bool writes, bool waits) {
    return found([=](Bench& on) {
      const Tensor a = on.made("a", 2);
      const PinnedMemory pinned = *on.device.allocate_pinned(8);
      std::array<float, 2> values{1, 1};
      pinned.write(0, values.data(), 8);
      on.device.upload(on.s0, pinned, 0, a.data(), 8);
      if (!writes) on.device.download(on.s0, a.data(), pinned, 0, 8);
      const Status waited = waits ? on.finish(on.s0) : Status();
      EXPECT_TRUE(waited.ok());
      if (writes)
        pinned.write(4, values.data(), 4);
      else
        pinned.read(4, values.data(), 4);
      EXPECT_TRUE(on.finish(on.s0).ok());
    });
  };
  for (const bool writes : {false, true}) EXPECT_EQ(program(writes, true), "");
  EXPECT_THAT(program(true, false),
              HasSubstr("upload reads pinned memory 1 [0, 8), and in no order "
                        "with it host thread rank 0 #2 write writes"));
  EXPECT_THAT(program(false, false), HasSubstr("download writes pinned memory 1 [0, 8), and in no "
                                               "order with it host thread rank 0 #2 read reads"));
}

// Whoever keeps what is large enough takes memory only to have more of it.
TEST(SimDevice, PinnedMemoryThatReplacesNoSmallerOneIsFound) {
  const auto program = [](std::vector<std::size_t> sizes, bool keeps) {
    return found([=](Bench& on) {
      PinnedMemory pinned;
      for (const std::size_t bytes : sizes) {
        if (keeps) {
          EXPECT_TRUE(grow(on.device, pinned, bytes).ok());
          continue;
        }
        Result<PinnedMemory> fresh = on.device.allocate_pinned(bytes);
        pinned = std::move(*fresh);
      }
    });
  };
  EXPECT_EQ(program({8, 400, 600, 600, 8}, true), "");
  EXPECT_EQ(program({8, 400, 600}, false), "");
  EXPECT_EQ(program({400, 400}, false),
            "needless memory: host thread rank 0 takes 400 bytes of pinned memory in the place of "
            "400\n");
  EXPECT_THAT(program({400, 8}, false), HasSubstr("8 bytes of pinned memory in the place of 400"));
}

TEST(SimDevice, AllocationsOfPinnedMemoryAreNumbered) {
  const std::string needless = found([](Bench& on) {
    const Tensor a = on.made("a", 2);
    EXPECT_EQ(on.device.pinned_allocation(a.data()), 0u);
    PinnedMemory first = *on.device.allocate_pinned(8);
    const PinnedMemory second = *on.device.allocate_pinned(8);
    const std::uint64_t number = on.device.pinned_allocation(first.data());
    EXPECT_NE(number, 0u);
    EXPECT_NE(number, on.device.pinned_allocation(second.data()));
    first = PinnedMemory();
    first = *on.device.allocate_pinned(8);
    EXPECT_NE(on.device.pinned_allocation(first.data()), number);
  });
  EXPECT_THAT(needless, HasSubstr("8 bytes of pinned memory in the place of 8"));
}

// --- Failures.

TEST(SimDevice, AnOperationThatFailsShowsAtEveryEventThatWasNotReached) {
  DeviceOptions options;
  options.failing_operation = 2;
  run_on_device(
      [](Bench& on) {
        const Tensor a = on.made("a");
        on.set(on.s0, a, 1);
        const Event before = on.device.record(on.s0);
        EXPECT_TRUE(on.device.synchronize(before, Deadline::never()).ok());
        on.set(on.s1, a, 2, "pack_bucket");
        const Status status = on.device.synchronize(on.device.record(on.s1), Deadline::never());
        EXPECT_EQ(status.code(), Code::kTransport);
        EXPECT_THAT(status.to_string(), HasSubstr("operation 2, pack_bucket, failed"));
        EXPECT_EQ(on.finish(on.s2).code(), Code::kTransport);  // for good, on all streams
        EXPECT_TRUE(on.device.synchronize(before, Deadline::never()).ok());
      },
      options);
}

TEST(SimDevice, AnAllocationIsRefused) {
  DeviceOptions options;
  options.failing_allocation = 2;
  run_on_device(
      [](Bench& on) {
        const Tensor a = on.made("a");
        const Result<Ref<Storage>> refused = on.device.allocate(100);
        ASSERT_FALSE(refused.has_value());
        EXPECT_EQ(refused.error().code(), Code::kOutOfMemory);
        EXPECT_THAT(refused.error().to_string(), HasSubstr("100 bytes"));
        EXPECT_TRUE(on.device.allocate(100).has_value());
        EXPECT_EQ(on.device.allocated_bytes(), 64u);
      },
      options);
}

TEST(SimDevice, AStoppedDeviceMeetsTheDeadline) {
  for (const std::uint64_t stopping : {0u, 1u}) {
    DeviceOptions options;
    options.stopping_operation = stopping;
    const Seen seen = run_on_device(
        [stopping](Bench& on) {
          const Tensor a = on.made("a");
          on.set(on.s0, a, 1);
          const Event event = on.device.record(on.s0);
          const Status status = on.device.synchronize(event, Deadline::in(3s));
          EXPECT_EQ(status.code(), stopping == 0 ? Code::kOk : Code::kTimeout);
          EXPECT_EQ(platform::now(), stopping == 0 ? 0s : 3s);
        },
        options);
    EXPECT_EQ(seen.end, End::kFinished);
  }
}

// What a copy may still come to stays that copy's.
TEST(SimDevice, TheDeadlineOfWriteAndReadLeavesPinnedMemoryToTheCopy) {
  for (const bool is_read : {false, true}) {
    DeviceOptions options;
    options.stopping_operation = is_read ? 2 : 1;
    const Seen seen = run_on_device(
        [is_read](Bench& on) {
          const Tensor a = on.made("a");
          std::vector<std::byte> bytes(16);
          const Status written = write(on.device, bytes, a.data(), Deadline::in(3s));
          EXPECT_EQ(written.code(), is_read ? Code::kOk : Code::kTimeout);
          if (!is_read) return;
          EXPECT_EQ(read(on.device, a.data(), bytes, Deadline::in(3s)).code(), Code::kTimeout);
        },
        options);
    EXPECT_EQ(seen.end, End::kFinished);
    EXPECT_EQ(seen.text(), "");
  }
}

TEST(SimDevice, WaitingForAStoppedDeviceForEverIsADeadlockThatIsSeen) {
  const simulation::MayLeak deadlocks;
  DeviceOptions options;
  options.stopping_operation = 1;
  const Seen seen = run_on_device(
      [](Bench& on) {
        on.device.submit(on.s0, "kernel", {}, [] {});
        on.device.synchronize(on.device.record(on.s0), Deadline::never()).ignore();
      },
      options);
  EXPECT_EQ(seen.end, End::kDeadlock);
}

TEST(SimDevice, OperationsTakeVirtualTime) {
  DeviceOptions options;
  options.duration = [](const Stream& stream, std::string_view, std::size_t) {
    return stream.handle == 1 ? 10us : 0us;
  };
  run_on_device(
      [](Bench& on) {
        for (int i = 0; i < 3; ++i) on.device.submit(on.s1, "kernel", {}, [] {});
        const Event event = on.device.record(on.s1);
        EXPECT_EQ(on.device.synchronize(event, Deadline::in(25us)).code(), Code::kTimeout);
        EXPECT_TRUE(on.device.synchronize(event, Deadline::never()).ok());
        EXPECT_EQ(platform::now(), 30us);
      },
      options);
}

TEST(SimDevice, TheCurrentStreamIsOfTheThread) {
  run_on_device([](Bench& on) {
    const StreamGuard outer(on.s1);
    platform::Thread thread("other", [&] {
      EXPECT_EQ(on.device.current_stream().handle, 0u);
      const StreamGuard guard(on.s2);
      platform::yield();
      EXPECT_EQ(on.device.current_stream().handle, 2u);
    });
    platform::yield();
    EXPECT_EQ(on.device.current_stream().handle, 1u);
    {
      const StreamGuard inner(on.s2);
      EXPECT_EQ(on.device.current_stream().handle, 2u);
    }
    EXPECT_EQ(on.device.current_stream().handle, 1u);
    thread.join();
  });
}

}  // namespace
}  // namespace lockstep::simulated
