// Bugs of real gradient reducers in the order of streams, each as a small program: with the bug a
// race is found in every schedule, those in which the value comes out right included; without it
// nothing is found and the value is right, in every schedule. The numbers are those of the
// project's list of bugs; where one came from stands with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "faults/sim/device/test_device_run.h"

namespace lockstep::simulated {
namespace {

using simulation::End;
using ::testing::HasSubstr;

struct Program {
  const char* name;
  const char* finding;  // part of it, with the bug
  // Returns whether the value is right.
  bool (*run)(Bench& on, bool is_planted);
};

// What happens in a step, on s0 unless a program says otherwise: backward writes a gradient, it is
// copied into a bucket, which is summed on s1, the communication stream, and copied back.

// pytorch#53160: the map of used parameters is zeroed for the next step before its copy has run.
bool s01(Bench& on, bool is_planted) {
  const Tensor map = on.made("used", 4);
  const PinnedMemory pinned = *on.device.allocate_pinned(16);
  const std::span<std::byte> host(pinned.data(), pinned.bytes());
  const std::array<float, 4> ones{1, 1, 1, 1};
  const std::array<float, 4> zeros{};
  on.device.host_write(host.data(), std::as_bytes(std::span(ones)));
  on.device.upload(on.s0, host.data(), map.data(), 16);
  const Event uploaded = on.device.record(on.s0);
  if (!is_planted)
    on.device.synchronize(uploaded, platform::Deadline::in(std::chrono::hours(1))).ignore();
  on.device.host_write(host.data(), std::as_bytes(std::span(zeros)), "zero for the next step");
  on.finish(on.s0).ignore();
  return on.holds(map, 1);
}

// pytorch#18465: a bucket is let go while the communication stream still has it.
bool s02(Bench& on, bool is_planted) {
  const Tensor result = on.made("result");
  {
    const Tensor bucket = on.made("bucket");
    on.set(on.s0, bucket, 1, "pack_bucket");
    on.order(on.s0, on.s1);
    if (!is_planted) on.device.note_use(on.s1, bucket.data());
    on.reduce(on.s1, bucket);
    on.device.copy(on.s1, bucket, result);
  }
  on.set(on.s0, on.made("next"), 100);
  on.finish(on.s1).ignore();
  return on.holds(result, 2);
}

// pytorch#40115: the whole step is on a side stream, and what ends it on the default one.
bool s04(Bench& on, bool is_planted) {
  const Tensor gradient = on.made("gradient");
  const Stream& step = on.s2;
  on.order(on.s0, step);
  on.set(step, gradient, 1, "backward");
  on.order(step, on.s1);
  on.reduce(on.s1, gradient);
  const Stream& last = is_planted ? on.s0 : step;
  on.order(on.s1, last);
  on.set(last, gradient, 3, "finalize");
  const Tensor seen = on.made("seen");
  on.device.copy(step, gradient, seen);
  on.finish(step).ignore();
  const bool is_right = on.holds(seen, 3);
  on.finish(on.s0).ignore();
  return is_right;
}

// apex 5fda4ce2: in the delayed path the result is copied back before the sum is done.
bool s05_wait(Bench& on, bool is_planted) {
  const Tensor gradient = on.made("gradient");
  const Tensor bucket = on.made("bucket");
  on.set(on.s0, bucket, 1, "pack_bucket");
  on.order(on.s0, on.s1);
  on.reduce(on.s1, bucket);
  if (!is_planted) on.order(on.s1, on.s0);
  on.device.copy(on.s0, bucket, gradient);
  on.finish(on.s0).ignore();
  const bool is_right = on.holds(gradient, 2);
  on.finish(on.s1).ignore();
  return is_right;
}

// apex 25ac9897: a buffer is allocated on the communication stream and filled on the main one, when
// the former still has the one before it in the same memory.
bool s05_buffer(Bench& on, bool is_planted) {
  const Tensor result = on.made("result");
  {
    const StreamGuard guard(on.s1);
    const Tensor before = on.made("buffer 0");
    on.set(on.s1, before, 1);
    on.device.copy(on.s1, before, result);
  }
  const StreamGuard guard(is_planted ? on.s1 : on.s0);
  const Tensor buffer = on.made("buffer 1");
  on.set(on.s0, buffer, 5, "pack_bucket");
  on.finish(on.s0).ignore();
  const bool is_right = on.holds(buffer, 5);
  on.finish(on.s1).ignore();
  return is_right && on.holds(result, 1);
}

// Megatron#3693: the sum waits for the default stream, and the gradient is scaled on the current
// one.
bool s07(Bench& on, bool is_planted) {
  const Tensor gradient = on.made("gradient");
  on.order(on.s0, on.s2);
  on.set(on.s2, gradient, 4, "scale");
  on.order(is_planted ? on.s0 : on.s2, on.s1);
  on.reduce(on.s1, gradient);
  on.finish(on.s1).ignore();
  on.finish(on.s2).ignore();
  return on.holds(gradient, 8);
}

// pytorch#82450: in a group of launches the event is recorded before they are submitted.
bool s08(Bench& on, bool is_planted) {
  const Tensor bucket = on.made("bucket");
  on.set(on.s0, bucket, 1, "pack_bucket");
  on.order(on.s0, on.s1);
  Event done = on.device.record(on.s1);
  on.reduce(on.s1, bucket);
  if (!is_planted) done = on.device.record(on.s1);
  on.device.wait(on.s0, done);
  const Tensor gradient = on.made("gradient");
  on.device.copy(on.s0, bucket, gradient);
  on.finish(on.s0).ignore();
  const bool is_right = on.holds(gradient, 2);
  on.finish(on.s1).ignore();
  return is_right;
}

// pytorch#170812: the result comes back by a copy that no stream of the caller's waits for.
bool s09(Bench& on, bool is_planted) {
  const Tensor bucket = on.made("bucket", 4);
  const PinnedMemory pinned = *on.device.allocate_pinned(16);
  const std::span<std::byte> host(pinned.data(), pinned.bytes());
  on.set(on.s0, bucket, 1, "pack_bucket");
  on.order(on.s0, on.s1);
  on.device.download(on.s1, bucket.data(), host.data(), 16);
  on.finish(on.s1).ignore();
  const std::array<float, 4> sums{2, 2, 2, 2};
  on.device.host_write(host.data(), std::as_bytes(std::span(sums)), "sum");
  on.device.upload(on.s1, host.data(), bucket.data(), 16);
  if (!is_planted) on.order(on.s1, on.s0);
  const Tensor gradient = on.made("gradient", 4);
  on.device.copy(on.s0, bucket, gradient);
  on.finish(on.s0).ignore();
  const bool is_right = on.holds(gradient, 2);
  on.finish(on.s1).ignore();
  return is_right;
}

// Horovod#3639: no event comes with a new output, and the collective overtakes what fills it with
// zeros.
bool s13(Bench& on, bool is_planted) {
  const Tensor output = on.made("output");
  on.device.fill_zero(on.s0, output.data(), output.storage()->bytes());
  const Event ready = is_planted ? Event{} : on.device.record(on.s0);
  on.device.wait(on.s1, ready);
  on.set(on.s1, output, 2, "all_gather");
  on.finish(on.s1).ignore();
  on.finish(on.s0).ignore();
  return on.holds(output, 2);
}

// pytorch#48498: two callbacks of one future, the second of which needs the first, on streams that
// know nothing of each other.
bool s14(Bench& on, bool is_planted) {
  const Tensor bucket = on.made("bucket");
  on.set(on.s0, bucket, 1, "all_reduce");
  const Event done = on.device.record(on.s0);
  on.device.wait(on.s1, done);
  on.device.wait(on.s2, done);
  on.set(on.s1, bucket, 5, "decompress");
  if (!is_planted) on.order(on.s1, on.s2);
  on.reduce(on.s2, bucket);
  on.finish(on.s1).ignore();
  on.finish(on.s2).ignore();
  return on.holds(bucket, 10);
}

// gloo 3aee6d9: the input is filled on stream 0, which a non-blocking stream does not wait for.
bool s15(Bench& on, bool is_planted) {
  const Tensor input = on.made("input", 4);
  const std::array<float, 4> values{3, 3, 3, 3};
  const Stream& filled_on = is_planted ? on.s0 : on.s1;
  if (!is_planted) on.order(on.s0, on.s1);
  on.device.upload(filled_on, std::as_bytes(std::span(values)).data(), input.data(), 16);
  on.reduce(on.s1, input);
  on.finish(on.s1).ignore();
  on.finish(on.s0).ignore();
  return on.holds(input, 6);
}

// pytorch#60127: a gradient that was captured, and not accumulated, is made on its node's stream
// and read on the caller's.
bool s16(Bench& on, bool is_planted) {
  const Tensor captured = on.made("captured");
  on.order(on.s0, on.s2);
  on.set(on.s2, captured, 6, "backward");
  if (!is_planted) on.order(on.s2, on.s0);
  const Tensor seen = on.made("seen");
  on.device.copy(on.s0, captured, seen);
  on.finish(on.s0).ignore();
  const bool is_right = on.holds(seen, 6);
  on.finish(on.s2).ignore();
  return is_right;
}

constexpr Program kPrograms[] = {
    {"S01", "upload reads pinned memory 1 [0, 16), and in no order", s01},
    {"S02", "copy reads bucket [0, 64), and in no order with it stream 0", s02},
    {"S04", "finalize writes gradient [0, 64), and in no order", s04},
    {"S05Wait", "all_reduce writes bucket [0, 64), and in no order", s05_wait},
    {"S05Buffer", "release writes buffer 0 [0, 64), and in no order", s05_buffer},
    {"S07", "scale writes gradient [0, 64), and in no order", s07},
    {"S08", "all_reduce writes bucket [0, 64), and in no order", s08},
    {"S09", "upload writes bucket [0, 16), and in no order", s09},
    {"S13", "fill_zero writes output [0, 64), and in no order", s13},
    {"S14", "decompress writes bucket [0, 64), and in no order", s14},
    {"S15", "upload writes input [0, 16), and in no order", s15},
    {"S16", "backward writes captured [0, 64), and in no order", s16},
};

class PlantedBug : public ::testing::TestWithParam<Program> {};

TEST_P(PlantedBug, IsFoundInEverySchedule) {
  int schedules = 0;
  int wrong = 0;
  for (const simulation::Schedule& schedule : many_schedules(100)) {
    bool is_right = false;
    const Seen seen =
        run_on_device(schedule, {}, [&](Bench& on) { is_right = GetParam().run(on, true); });
    ASSERT_EQ(seen.end, End::kFinished);
    ASSERT_THAT(seen.text(), HasSubstr(GetParam().finding)) << "seed " << schedule.seed;
    ++schedules;
    wrong += is_right ? 0 : 1;
  }
  RecordProperty("schedules", schedules);
  RecordProperty("wrong_values", wrong);
  EXPECT_LT(wrong, schedules);  // so a comparison of values alone would have missed it there
}

TEST_P(PlantedBug, CorrectedIsCleanAndRightInEverySchedule) {
  for (const simulation::Schedule& schedule : many_schedules(100)) {
    bool is_right = false;
    const Seen seen =
        run_on_device(schedule, {}, [&](Bench& on) { is_right = GetParam().run(on, false); });
    ASSERT_EQ(seen.end, End::kFinished);
    ASSERT_EQ(seen.text(), "") << "seed " << schedule.seed;
    ASSERT_TRUE(is_right) << "seed " << schedule.seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, PlantedBug, ::testing::ValuesIn(kPrograms),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace lockstep::simulated
