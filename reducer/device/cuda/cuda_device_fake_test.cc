// CudaDevice over a CUDA runtime without a GPU (test_fake_cuda.h): streams, events, memory and
// failures, step by step. What only a GPU can tell is in cuda_device_test.cc.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <random>

#include "reducer/device/cuda/cuda_error.h"
#include "reducer/device/cuda/test_cuda_subject.h"
#include "reducer/device/cuda/test_fake_cuda.h"
#include "reducer/device/host/host_device.h"
#include "reducer/device/test_no_gpu.h"

namespace lockstep {
namespace {

using platform::Deadline;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class FakeCudaDevice : public ::testing::Test {
 protected:
  FakeCudaDevice() { reset_fake_cuda(); }
  void SetUp() override {
    Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::open(0);
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    device = std::move(*opened);
    own = device->current_stream();
  }
  void TearDown() override {
    expect_nothing_left();
    device.reset();
    expect_nothing_left();
    EXPECT_THAT(fake().violations, IsEmpty());
  }
  static void expect_nothing_left() {
    EXPECT_EQ(fake().last_error, 0) << "left for the user's next call";
  }

  static FakeCuda& fake() { return fake_cuda(); }
  static void finish_all() { fake().run(); }
  Tensor made(std::int64_t elements) {
    return *Tensor::empty(*device, DType::kFloat32, Shape::row_major({elements}));
  }
  void hold(const Stream& stream) { fake().hold(native(stream)); }
  void let_go(const Stream& stream) { fake().let_go(native(stream)); }
  CUstream_st* native(const Stream& stream) {
    return static_cast<CUstream_st*>(device->native(stream));
  }
  Status finish(const Stream& stream) {
    return device->synchronize(device->record(stream), Deadline::in(std::chrono::seconds(5)));
  }
  Code later_status(const Event& event) {
    return device->synchronize(event, Deadline::in(std::chrono::seconds(5))).code();
  }
  static float first_of(const Tensor& tensor) {
    float value = 0;
    std::memcpy(&value, tensor.data(), sizeof(value));
    return value;
  }
  static void set_first(const Tensor& tensor, float value) {
    std::memcpy(tensor.data(), &value, sizeof(value));
  }

  // In the middle of the next call of that name another thread submits, too. This one goes on when
  // that is done, or plainly waits: so the other one enters the fake when nobody else is in it, and
  // what it calls first, before it may have to wait, is cudaGetDevice.
  void submit_during(const char* call, std::function<void()> submission) {
    fake().during[call] = [this, submission = std::move(submission)] {
      const auto has_begun = std::make_shared<std::promise<void>>();
      fake().during["cudaGetDevice"] = [has_begun] { has_begun->set_value(); };
      another = std::async(std::launch::async, submission);
      has_begun->get_future().wait();
      another.wait_for(std::chrono::milliseconds(200));
    };
  }

  // So many parameters that their table is copied; twice as many fit into one place for it.
  static constexpr std::size_t kFar = 1023;

  std::unique_ptr<CudaDevice> device;
  Stream own;
  std::future<void> another;
};

TEST_F(FakeCudaDevice, OperationsHaveTheBitsOfTheHost) {
  CudaSubject subject(*device);
  std::mt19937_64 random(3);
  for (int i = 0; i < 50; ++i) {
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

TEST_F(FakeCudaDevice, AThousandParametersAreOneLaunchAndMoreACopyBeforeIt) {
  CudaSubject subject(*device);
  KernelCase value;
  value.factor = 1.0 / 3;
  for (int i = 0; i < 1000; ++i) value.pieces.push_back({{64}, 0, 0, 1, 0, 0});
  EXPECT_EQ(expect_gather(subject, value), "");
  EXPECT_EQ(fake().calls["launch"], 1);
  EXPECT_EQ(fake().calls["cudaMemcpyAsync"], 2 + 1);  // up, down
  for (int i = 0; i < 100; ++i) value.pieces.push_back({{64}, 0, 0, 1, 0, 0});
  EXPECT_EQ(expect_gather(subject, value), "");
  EXPECT_EQ(fake().calls["launch"], 2);
  EXPECT_EQ(fake().calls["cudaMemcpyAsync"], 3 + 2 + 1 + 1);  // up, the table, down
}

TEST_F(FakeCudaDevice, SynchronizeEndsAtItsDeadlineAndCanBeRepeated) {
  hold(own);
  const Event event = device->record(own);
  const Status late = device->synchronize(event, Deadline::in(std::chrono::milliseconds(5)));
  EXPECT_EQ(late.code(), Code::kTimeout);
  expect_nothing_left();
  let_go(own);
  EXPECT_TRUE(device->synchronize(event, Deadline::in(std::chrono::seconds(5))).ok());
}

TEST_F(FakeCudaDevice, EventsAreUsedAgain) {
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(finish(own).ok());
  EXPECT_LE(fake().calls["cudaEventCreateWithFlags"], 3);
  hold(own);
  std::vector<Event> events;
  for (int i = 0; i < 100; ++i) events.push_back(device->record(own));
  let_go(own);
  for (const Event& event : events)
    ASSERT_TRUE(device->synchronize(event, Deadline::in(std::chrono::seconds(5))).ok());
  EXPECT_LE(fake().calls["cudaEventCreateWithFlags"], 103);
}

TEST_F(FakeCudaDevice, AStreamWaitsForAnEventOfAnother) {
  const Stream other = *device->new_stream();
  const Tensor a = made(1);
  const Tensor b = made(1);
  set_first(a, 7);
  set_first(b, 9);
  ASSERT_TRUE(finish(own).ok());
  hold(own);
  device->fill_zero(own, a.data(), 4);
  device->wait(other, device->record(own));
  device->copy(other, a, b);
  const Event copied = device->record(other);
  EXPECT_EQ(device->synchronize(copied, Deadline::in(std::chrono::milliseconds(2))).code(),
            Code::kTimeout);
  EXPECT_EQ(first_of(b), 9);
  let_go(own);
  EXPECT_TRUE(device->synchronize(copied, Deadline::in(std::chrono::seconds(5))).ok());
  EXPECT_EQ(first_of(b), 0);
}

TEST_F(FakeCudaDevice, MemoryIsNotGivenBackBeforeEveryStreamThatUsedItIsDone) {
  const Stream second = *device->new_stream();
  const Stream third = *device->new_stream();
  const std::size_t before = fake().live_blocks;
  {
    const Tensor gradient = made(100);
    const Tensor bucket = made(100);
    hold(second);
    hold(third);
    device->copy(own, gradient, bucket);
    device->add(second, gradient, bucket);
    device->note_use(third, gradient.data());
  }
  ASSERT_TRUE(finish(own).ok());
  EXPECT_EQ(fake().live_blocks, before + 2);
  let_go(second);
  ASSERT_TRUE(finish(second).ok());
  EXPECT_EQ(fake().live_blocks, before + 1);  // the gradient, which only the third one holds
  let_go(third);
  ASSERT_TRUE(finish(third).ok());
  ASSERT_TRUE(finish(own).ok());
  EXPECT_EQ(fake().live_blocks, before);
  EXPECT_EQ(device->allocated_bytes(), 0u);
}

TEST_F(FakeCudaDevice, MemoryThatOneStreamUsedIsGivenBackOnThatStreamWithoutAWait) {
  const Stream second = *device->new_stream();
  const std::size_t before = fake().live_blocks;
  hold(second);
  {
    const Tensor gradient = made(100);
    device->fill_zero(own, gradient.data(), 400);
  }
  EXPECT_EQ(fake().calls["cudaStreamWaitEvent"], 0);
  ASSERT_TRUE(finish(own).ok());
  EXPECT_EQ(fake().live_blocks, before);
  let_go(second);
}

TEST_F(FakeCudaDevice, TheFirstUseByAnotherStreamWaitsForTheHomeOfAStorageOnce) {
  const Stream second = *device->new_stream();
  const Tensor tensor = made(100);
  hold(own);
  device->fill_zero(second, tensor.data(), 400);
  EXPECT_EQ(fake().calls["cudaStreamWaitEvent"], 1);
  device->fill_zero(second, tensor.data() + 40, 40);
  EXPECT_EQ(fake().calls["cudaStreamWaitEvent"], 1);
  const Event filled = device->record(second);
  const Status early = device->synchronize(filled, Deadline::in(std::chrono::milliseconds(2)));
  EXPECT_EQ(early.code(), Code::kTimeout);
  let_go(own);
  EXPECT_TRUE(device->synchronize(filled, Deadline::in(std::chrono::seconds(5))).ok());
}

TEST_F(FakeCudaDevice, StoragesBelongToTheStreamThatIsCurrent) {
  const Stream second = *device->new_stream();
  device->set_current_stream(second);
  const Tensor tensor = made(100);
  device->fill_zero(second, tensor.data(), 400);
  EXPECT_EQ(fake().calls["cudaStreamWaitEvent"], 0);
  device->fill_zero(own, tensor.data(), 400);
  EXPECT_EQ(fake().calls["cudaStreamWaitEvent"], 1);
}

TEST_F(FakeCudaDevice, TablesOnTheirWayAreNotOverwritten) {
  std::vector<Tensor> gradients;
  std::vector<Tensor> slots;
  for (std::size_t i = 0; i < 2 * kFar; ++i) {
    gradients.push_back(made(1));
    slots.push_back(made(1));
    set_first(gradients.back(), static_cast<float>(i));
  }
  std::vector<Transfer> all;
  for (std::size_t i = 0; i < 2 * kFar; ++i)
    all.push_back({&gradients[i], slots[i].data(), &slots[i].shape()});
  hold(own);
  device->pack_bucket(own, std::span(all).first(kFar), 2.0);
  device->pack_bucket(own, std::span(all).last(kFar), 3.0);
  let_go(own);
  ASSERT_TRUE(finish(own).ok());
  EXPECT_EQ(first_of(slots[100]), 200.0f);
  EXPECT_EQ(first_of(slots[kFar + 100]), 3.0f * (kFar + 100));
  for (int i = 0; i < 10; ++i) {
    device->pack_bucket(own, all, 2.0);
    ASSERT_TRUE(finish(own).ok());
  }
  EXPECT_EQ(fake().calls["cudaHostAlloc"], CudaDevice::kTables);  // when the stream was made
}

// The reducer gathers from a GPU while the GPU's own worker adds there.
TEST_F(FakeCudaDevice, TwoThreadsMaySubmitToOneStreamAtOnce) {
  const Tensor a = made(1);
  const Tensor b = made(1);
  const Tensor c = made(1);
  const Tensor d = made(1);
  set_first(a, 1);
  set_first(b, 10);
  set_first(c, 100);
  set_first(d, 1000);
  submit_during("launch", [&] { device->add(own, a, b); });
  device->copy(own, c, d);
  another.get();
  ASSERT_TRUE(finish(own).ok());
  EXPECT_EQ(first_of(b), 11);
  EXPECT_EQ(first_of(d), 100);
}

TEST_F(FakeCudaDevice, TwoThreadsMaySubmitLargeTablesToOneStreamAtOnce) {
  std::vector<Tensor> gradients;
  std::vector<Tensor> slots;
  std::vector<Transfer> all;
  for (std::size_t i = 0; i < 2 * kFar; ++i) {
    gradients.push_back(made(1));
    slots.push_back(made(1));
    set_first(gradients.back(), 1);
    set_first(slots.back(), 0);
  }
  for (std::size_t i = 0; i < 2 * kFar; ++i)
    all.push_back({&gradients[i], slots[i].data(), &slots[i].shape()});
  submit_during("cudaMemcpyAsync",
                [&] { device->pack_bucket(own, std::span(all).first(kFar), 2.0); });
  device->pack_bucket(own, std::span(all).last(kFar), 3.0);
  another.get();
  ASSERT_TRUE(finish(own).ok());
  for (std::size_t i = 0; i < 2 * kFar; ++i)
    ASSERT_EQ(first_of(slots[i]), i < kFar ? 2.0f : 3.0f) << i;
}

TEST_F(FakeCudaDevice, AnotherThreadDoesNotOvertakeTheWaitForTheHomeOfAStorage) {
  const Stream second = *device->new_stream();
  const Tensor tensor = made(1);
  const Tensor result = made(1);
  device->note_use(second, result.data());
  set_first(tensor, 5);
  set_first(result, 9);
  ASSERT_TRUE(finish(own).ok());
  hold(own);
  device->fill_zero(own, tensor.data(), 4);
  submit_during("cudaStreamWaitEvent", [&] { device->copy(second, tensor, result); });
  device->note_use(second, tensor.data());
  another.get();
  const Event copied = device->record(second);
  EXPECT_EQ(device->synchronize(copied, Deadline::in(std::chrono::milliseconds(2))).code(),
            Code::kTimeout);
  EXPECT_EQ(first_of(result), 9);
  let_go(own);
  ASSERT_TRUE(finish(second).ok());
  EXPECT_EQ(first_of(result), 0);
}

// No power of two holds so many bytes.
TEST_F(FakeCudaDevice, PinnedMemoryOfMoreBytesThanAnyMemoryIsRefused) {
  const int calls = fake().calls["cudaHostAlloc"];
  for (const std::size_t bytes : {~std::size_t{0}, ~std::size_t{0} / 2 + 2, ~std::size_t{0} / 2})
    EXPECT_EQ(device->allocate_pinned(bytes).error().code(), Code::kOutOfMemory);
  EXPECT_EQ(fake().calls["cudaHostAlloc"], calls);
}

TEST_F(FakeCudaDevice, MemoryThatIsRefusedIsAnError) {
  fake().fail_next["cudaMallocFromPoolAsync"] = cudaErrorMemoryAllocation;
  const Result<Tensor> tensor = Tensor::empty(*device, DType::kFloat32, Shape::row_major({1000}));
  ASSERT_FALSE(tensor.has_value());
  EXPECT_EQ(tensor.error().code(), Code::kOutOfMemory);
  EXPECT_THAT(tensor.error().to_string(), HasSubstr("4000 bytes"));
  fake().fail_next["cudaHostAlloc"] = cudaErrorMemoryAllocation;
  EXPECT_EQ(device->allocate_pinned(10).error().code(), Code::kOutOfMemory);
  EXPECT_TRUE(device->allocate_pinned(10).has_value());
  fake().fail_next["cudaStreamCreateWithFlags"] = cudaErrorMemoryAllocation;
  EXPECT_EQ(device->new_stream().error().code(), Code::kOutOfMemory);
  fake().fail_next["cudaHostAlloc"] = cudaErrorMemoryAllocation;
  EXPECT_EQ(device->new_stream().error().code(), Code::kOutOfMemory);
  expect_nothing_left();
}

// An event that the user waits for must not take the failure from one that the reducer waits for.
TEST_F(FakeCudaDevice, ASubmissionThatFailsShowsInEveryEventBehindItUntilItHasShown) {
  const Tensor tensor = made(10);
  const Event before = device->record(own);
  fake().fail_next["launch"] = cudaErrorLaunchOutOfResources;
  device->copy(own, tensor, tensor);
  const Event behind = device->record(own);
  const Event later = device->record(own);
  EXPECT_TRUE(device->synchronize(before, Deadline::in(std::chrono::seconds(5))).ok());
  const Status status = device->synchronize(behind, Deadline::in(std::chrono::seconds(5)));
  EXPECT_EQ(status.code(), Code::kTransport);
  EXPECT_THAT(status.to_string(), HasSubstr("launching a kernel"));
  EXPECT_EQ(later_status(later), Code::kTransport);
  EXPECT_EQ(later_status(behind), Code::kTransport);
  EXPECT_TRUE(finish(own).ok());
  EXPECT_EQ(later_status(before), Code::kOk);
}

TEST_F(FakeCudaDevice, AFailureThatHasShownLeavesRoomForTheNext) {
  const Tensor tensor = made(10);
  std::vector<Event> events;
  for (int i = 0; i < 3; ++i) {
    fake().fail_next["launch"] = cudaErrorLaunchOutOfResources;
    device->copy(own, tensor, tensor);
    events.push_back(device->record(own));
    EXPECT_EQ(later_status(events.back()), Code::kTransport);
    EXPECT_TRUE(finish(own).ok());
  }
  for (const Event& event : events) EXPECT_EQ(later_status(event), Code::kTransport);
}

TEST_F(FakeCudaDevice, ATableWithoutMemoryIsAFailureAndNoLaunch) {
  CudaSubject subject(*device);
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < kFar; ++i) tensors.push_back(made(1));
  std::vector<Transfer> all;
  for (const Tensor& tensor : tensors) all.push_back({&tensor, tensor.data(), &tensor.shape()});
  hold(own);
  for (int i = 0; i < CudaDevice::kTables; ++i) device->pack_bucket(own, all, 2.0);
  fake().fail_next["cudaHostAlloc"] = cudaErrorMemoryAllocation;
  device->pack_bucket(own, all, 2.0);
  EXPECT_EQ(fake().calls["launch"], CudaDevice::kTables);
  let_go(own);
  EXPECT_EQ(finish(own).code(), Code::kOutOfMemory);
  device->pack_bucket(own, all, 2.0);
  EXPECT_TRUE(finish(own).ok());
  EXPECT_EQ(fake().calls["launch"], CudaDevice::kTables + 1);
}

TEST_F(FakeCudaDevice, AFailureComesAlongWithAnEventThatIsWaitedFor) {
  const Stream second = *device->new_stream();
  const Tensor tensor = made(10);
  fake().fail_next["cudaMemsetAsync"] = cudaErrorInvalidValue;
  device->fill_zero(own, tensor.data(), 40);
  const Event filled = device->record(own);
  device->wait(second, filled);
  EXPECT_EQ(finish(second).code(), Code::kTransport);
  EXPECT_EQ(later_status(filled), Code::kTransport);
}

// Nobody synchronizes the first stream: what came along once must not do so for ever.
TEST_F(FakeCudaDevice, AFailureComesAlongOnce) {
  const Stream second = *device->new_stream();
  const Tensor tensor = made(10);
  fake().fail_next["cudaMemsetAsync"] = cudaErrorInvalidValue;
  device->fill_zero(own, tensor.data(), 40);
  device->wait(second, device->record(own));
  EXPECT_EQ(finish(second).code(), Code::kTransport);
  device->wait(second, device->record(own));
  EXPECT_TRUE(finish(second).ok());
}

// Waits that CudaDevice adds for the sake of memory are nobody's who asks.
TEST_F(FakeCudaDevice, AFailureStaysWhereItIsWhenMemoryIsUsedElsewhere) {
  const Stream second = *device->new_stream();
  {
    const Tensor tensor = made(10);
    fake().fail_next["launch"] = cudaErrorLaunchOutOfResources;
    device->copy(own, tensor, tensor);
    device->fill_zero(second, tensor.data(), 40);
  }
  EXPECT_TRUE(finish(second).ok());
  EXPECT_EQ(finish(own).code(), Code::kTransport);
}

TEST_F(FakeCudaDevice, MemoryIsKeptWhenTheGpuRefusesTheWaitForIt) {
  const Stream second = *device->new_stream();
  const std::size_t before = fake().live_blocks;
  for (const char* call : {"cudaStreamWaitEvent", "cudaEventRecord"}) {
    hold(second);
    {
      const Tensor tensor = made(10);
      device->fill_zero(second, tensor.data(), 40);
      fake().fail_next[call] = cudaErrorInvalidValue;
    }
    ASSERT_EQ(fake().fail_next.count(call), 0u);
    EXPECT_EQ(finish(own).code(), Code::kTransport) << call;
    let_go(second);
    EXPECT_TRUE(finish(second).ok());
  }
  EXPECT_EQ(fake().live_blocks, before + 2);
  EXPECT_EQ(device->allocated_bytes(), 0u);
  device.reset();
  finish_all();
  EXPECT_EQ(fake().live_blocks, 0u);
}

// The driver lets submissions wait while too many launches are ahead of the GPU.
TEST_F(FakeCudaDevice, NobodyWhoAsksWaitsForASubmissionThatWaits) {
  const Stream second = *device->new_stream();
  hold(own);
  const Event event = device->record(own);
  int asked = 0;
  const auto ask = [&] {
    ++asked;
    const Status late = device->synchronize(event, Deadline::in(std::chrono::milliseconds(1)));
    EXPECT_EQ(late.code(), Code::kTimeout);
  };
  fake().during["cudaEventRecord"] = ask;
  static_cast<void>(device->record(own));
  fake().during["cudaStreamWaitEvent"] = ask;
  device->wait(second, event);
  EXPECT_EQ(asked, 2);
  let_go(own);
  EXPECT_TRUE(finish(second).ok());
}

// While the GPU is told to wait for it, an event may pass; it must not become another's then.
TEST_F(FakeCudaDevice, AnEventIsNotUsedAgainWhileAStreamIsToldToWaitForIt) {
  const Stream second = *device->new_stream();
  hold(own);
  const Event event = device->record(own);
  fake().during["cudaStreamWaitEvent"] = [&] {
    let_go(own);
    EXPECT_EQ(later_status(event), Code::kOk);
    hold(own);
    static_cast<void>(device->record(own));
  };
  device->wait(second, event);
  EXPECT_TRUE(finish(second).ok());
  let_go(own);
}

// A group that is stuck is never destroyed, nor is the memory that it has.
TEST_F(FakeCudaDevice, AGpuThatDoesNotEndIsLeftToTheProcessWithTheMemoryInUse) {
  hold(own);
  auto leaked = std::make_unique<Tensor>(made(10));
  device->fill_zero(own, leaked->data(), 40);
  const int freed = fake().calls["cudaFreeAsync"];
  const auto begin = std::chrono::steady_clock::now();
  device.reset();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(fake().calls["cudaFreeAsync"], freed);
  EXPECT_EQ(fake().calls["cudaStreamDestroy"], 0);
  static_cast<void>(leaked.release());  // the device is gone
}

// The same where the GPU has nothing to do: the thread is stuck in NCCL.
TEST_F(FakeCudaDevice, ADeviceThatWasLeftToTheProcessAsksForNothingBack) {
  auto leaked = std::make_unique<Tensor>(made(10));
  const int freed = fake().calls["cudaFreeAsync"];
  device->leave_to_process();
  device.reset();
  EXPECT_EQ(fake().calls["cudaFreeAsync"], freed);
  EXPECT_EQ(fake().calls["cudaStreamDestroy"], 0);
  static_cast<void>(leaked.release());
}

TEST_F(FakeCudaDevice, MemoryThatOutlivesAnIdleDeviceIsAnErrorOfItsOwner) {
  const Tensor tensor = made(10);
  EXPECT_DEATH(device.reset(), "allocated_");
}

// It would wait in the driver, beyond its limit.
TEST_F(FakeCudaDevice, TheDestructorSubmitsNoEvents) {
  const int recorded = fake().calls["cudaEventRecord"];
  device.reset();
  EXPECT_EQ(fake().calls["cudaEventRecord"], recorded);
}

TEST_F(FakeCudaDevice, MemoryFromElsewhereStaysItsOwners) {
  std::vector<std::byte> theirs(64);
  const std::size_t before = fake().live_blocks;
  {
    const Ref<Storage> storage = make_ref<Storage>(*device, theirs.data(), theirs.size());
    const Tensor tensor(storage, 0, DType::kFloat32, Shape::row_major({16}));
    set_first(tensor, 5);
    device->copy(own, tensor, made(16));
    ASSERT_TRUE(finish(own).ok());
  }
  ASSERT_TRUE(finish(own).ok());
  EXPECT_EQ(fake().live_blocks, before);
  EXPECT_EQ(device->allocated_bytes(), 0u);
}

TEST_F(FakeCudaDevice, TensorsOfAnotherDeviceAreRefused) {
  HostDevice host;
  const Tensor there = *Tensor::empty(host, DType::kFloat32, Shape::row_major({4}));
  const Tensor here = made(4);
  EXPECT_DEATH(device->copy(own, there, here), "device");
  EXPECT_DEATH(device->add(own, here, there), "device");
  const Transfer transfer{&there, here.data(), &here.shape()};
  EXPECT_DEATH(device->pack_bucket(own, {&transfer, 1}, 1.0), "device");
}

TEST_F(FakeCudaDevice, WhatIsSlowToSetUpIsThereBeforeTheFirstLaunch) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < kFar; ++i) tensors.push_back(made(1));
  std::vector<Transfer> all;
  for (const Tensor& tensor : tensors) all.push_back({&tensor, tensor.data(), &tensor.shape()});
  const int allocated = fake().calls["cudaHostAlloc"];
  const int copied = fake().calls["cudaMemcpyAsync"];
  hold(own);
  for (int i = 0; i < CudaDevice::kTables; ++i) device->pack_bucket(own, all, 2.0);
  EXPECT_EQ(fake().calls["cudaMemcpyAsync"], copied + CudaDevice::kTables);
  EXPECT_EQ(fake().calls["cudaHostAlloc"], allocated);
  let_go(own);
}

// A table whose event was refused is still on its way until a later event says otherwise.
TEST_F(FakeCudaDevice, ATableWithoutAnEventIsNotOverwritten) {
  std::vector<Tensor> gradients;
  std::vector<Tensor> slots;
  std::vector<Transfer> all;
  for (std::size_t i = 0; i < kFar + 50; ++i) {
    gradients.push_back(made(1));
    slots.push_back(made(1));
    set_first(gradients.back(), 1);
  }
  for (std::size_t i = 0; i < kFar + 50; ++i)
    all.push_back({&gradients[i], slots[i].data(), &slots[i].shape()});
  hold(own);
  fake().fail_next["cudaEventRecord"] = cudaErrorInvalidValue;
  device->pack_bucket(own, all, 2.0);
  std::vector<Transfer> turned(all.rbegin(), all.rend());
  for (Transfer& transfer : turned) transfer.gradient = &gradients[0];
  device->pack_bucket(own, std::span(turned).first(kFar), 3.0);
  let_go(own);
  EXPECT_EQ(finish(own).code(), Code::kTransport);
  EXPECT_EQ(first_of(slots[0]), 2.0f);
  EXPECT_EQ(first_of(slots[kFar + 49]), 3.0f);
}

TEST_F(FakeCudaDevice, AnEventThatCannotBeRecordedIsAFailure) {
  fake().fail_next["cudaEventRecord"] = cudaErrorInvalidValue;
  EXPECT_EQ(finish(own).code(), Code::kTransport);
  EXPECT_TRUE(finish(own).ok());
}

TEST_F(FakeCudaDevice, AFailureOfTheGpuShows) {
  hold(own);
  const Event event = device->record(own);
  fake().gpu_error = cudaErrorIllegalAddress;
  const Status status = device->synchronize(event, Deadline::in(std::chrono::seconds(5)));
  EXPECT_EQ(status.code(), Code::kTransport);
  EXPECT_THAT(status.to_string(), HasSubstr("submitted earlier"));
}

TEST_F(FakeCudaDevice, PinnedMemoryIsUsedAgain) {
  const std::byte* first = device->allocate_pinned(5000)->data();
  EXPECT_EQ(device->allocate_pinned(6000)->data(), first);
  EXPECT_EQ(fake().calls["cudaHostAlloc"], CudaDevice::kTables + 1);
}

TEST_F(FakeCudaDevice, TheSixtyFourthStreamIsRefused) {
  for (int i = 1; i < 63; ++i) ASSERT_TRUE(device->new_stream().has_value());
  EXPECT_EQ(device->new_stream().error().code(), Code::kInvalidArgument);
}

TEST_F(FakeCudaDevice, AStreamThatIsGivenBackIsTheNextOne) {
  const Stream first = *device->new_stream();
  const Stream second = *device->new_stream();
  EXPECT_NE(first.handle, second.handle);
  device->give_back(first);
  EXPECT_EQ(device->new_stream()->handle, first.handle);
  EXPECT_NE(device->new_stream()->handle, first.handle);  // it is given to one only
  for (int i = 0; i < 200; ++i) {
    const Result<Stream> again = device->new_stream();
    ASSERT_TRUE(again.has_value()) << again.error().to_string();
    ASSERT_TRUE(finish(*again).ok());
    device->give_back(*again);
  }
  EXPECT_EQ(fake().calls["cudaStreamCreateWithFlags"], 6);  // reclaiming, own, and four here
}

TEST_F(FakeCudaDevice, AFailureOfTheUserBeforeIsNotToldToTheNext) {
  const Stream stream = *device->new_stream();
  const Tensor tensor = made(4);
  fake().fail_next["cudaMemsetAsync"] = cudaErrorInvalidValue;
  device->fill_zero(stream, tensor.data(), 16);
  device->give_back(stream);
  const Stream again = *device->new_stream();
  ASSERT_EQ(again.handle, stream.handle);
  EXPECT_TRUE(finish(again).ok());
  fake().fail_next["cudaMemsetAsync"] = cudaErrorInvalidValue;
  device->fill_zero(again, tensor.data(), 16);
  EXPECT_EQ(finish(again).code(), Code::kTransport);  // but its own are
}

TEST_F(FakeCudaDevice, EverythingIsGivenBack) {
  { const Tensor tensor = made(10); }
  static_cast<void>(device->allocate_pinned(10));
  device.reset();
  finish_all();
  EXPECT_EQ(fake().live_blocks, 0u);
  EXPECT_EQ(fake().calls["cudaEventDestroy"], fake().calls["cudaEventCreateWithFlags"]);
  EXPECT_EQ(fake().calls["cudaFreeHost"], fake().calls["cudaHostAlloc"]);
  EXPECT_EQ(fake().calls["cudaStreamDestroy"], fake().calls["cudaStreamCreateWithFlags"]);
}

// GPU 0 is another's, though it is what every thread begins with.
TEST(CudaDeviceOpen, AGpuThatIsNotUsedGetsNoContext) {
  reset_fake_cuda();
  FakeCuda& fake = fake_cuda();
  fake.devices = 2;
  {
    const std::unique_ptr<CudaDevice> device = *CudaDevice::open(1);
    const Tensor tensor = *Tensor::empty(*device, DType::kFloat32, Shape::row_major({4}));
    fake.current = 0;  // as on a fresh thread
    device->fill_zero(device->current_stream(), tensor.data(), 16);
  }
  EXPECT_EQ(fake.contexts, std::set<int>{1});
  EXPECT_EQ(fake.current, 1);
}

TEST(CudaDeviceOpen, TheGpuThatTheUserWorksWithStaysCurrent) {
  reset_fake_cuda();
  FakeCuda& fake = fake_cuda();
  fake.devices = 2;
  fake.contexts = {0};
  const std::unique_ptr<CudaDevice> device = *CudaDevice::open(1);
  EXPECT_EQ(fake.current, 0);
  EXPECT_TRUE(device->new_stream().has_value());
  EXPECT_EQ(fake.current, 0);
}

// It is made current all the same.
TEST(CudaDeviceOpen, ARuntimeThatDoesNotTellWhatIsCurrentIsToldWhatShallBe) {
  reset_fake_cuda();
  FakeCuda& fake = fake_cuda();
  fake.devices = 2;
  fake.fail_next["cudaGetDevice"] = cudaErrorInitializationError;
  const std::unique_ptr<CudaDevice> device = *CudaDevice::open(1);
  EXPECT_EQ(fake.current, 1);
  EXPECT_EQ(fake.last_error, 0);
}

using Pools = std::set<std::pair<int, int>>;  // GPU that uses, GPU whose memory it is

TEST(CudaDeviceOpen, CardsOfOneProcessMayUseEachOthersMemory) {
  reset_fake_cuda();
  FakeCuda& fake = fake_cuda();
  fake.devices = 3;
  const auto zero = *CudaDevice::open(0);
  EXPECT_EQ(fake.open_pools, Pools());
  auto one = *CudaDevice::open(1);
  EXPECT_EQ(fake.open_pools, (Pools{{0, 1}, {1, 0}}));
  const auto again = *CudaDevice::open(0);
  EXPECT_EQ(fake.open_pools, (Pools{{0, 1}, {1, 0}}));
  EXPECT_EQ(fake.calls["cudaMemPoolSetAccess"], 4);  // `again` has a pool of its own
  // One that has ended is nobody's peer.
  one.reset();
  fake.open_pools.clear();
  const auto two = *CudaDevice::open(2);
  EXPECT_EQ(fake.open_pools, (Pools{{0, 2}, {2, 0}}));
  EXPECT_EQ(fake.last_error, 0);
}

TEST(CudaDeviceOpen, CardsThatCannotReachEachOtherAreLeftAlone) {
  reset_fake_cuda();
  FakeCuda& fake = fake_cuda();
  fake.devices = 2;
  fake.out_of_reach = {{0, 1}, {1, 0}};
  const auto zero = *CudaDevice::open(0);
  const auto one = *CudaDevice::open(1);
  EXPECT_EQ(fake.open_pools, Pools());
}

TEST(CudaDeviceOpen, AnotherGpuThatMayNotUseItsMemoryIsAnError) {
  reset_fake_cuda();
  FakeCuda& fake = fake_cuda();
  fake.devices = 2;
  const auto zero = *CudaDevice::open(0);
  fake.fail_next["cudaMemPoolSetAccess"] = cudaErrorNotSupported;
  const Result<std::unique_ptr<CudaDevice>> one = CudaDevice::open(1);
  ASSERT_FALSE(one.has_value());
  EXPECT_EQ(one.error().code(), Code::kTransport);
  EXPECT_THAT(one.error().to_string(), HasSubstr("opening its pool of memory to device 0"));
  EXPECT_TRUE(CudaDevice::open(1).has_value());
}

// What open() says where there is nothing to open.
std::string refusal(int ordinal = 0) {
  const Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::open(ordinal);
  return opened ? "opened" : opened.error().to_string();
}

TEST(CudaDeviceOpen, ARefusalSaysWhatToDo) {
  reset_fake_cuda();
  FakeCuda& fake = fake_cuda();
  EXPECT_THAT(refusal(1), HasSubstr("there are 1"));
  EXPECT_THAT(refusal(-1), HasSubstr("numbered from 0"));
  fake.load_error = cudaErrorNoKernelImageForDevice;
  EXPECT_THAT(refusal(), HasSubstr("compute capability 9.0"));
  EXPECT_THAT(refusal(), HasSubstr("CMAKE_CUDA_ARCHITECTURES"));
  fake.load_error = cudaErrorUnsupportedPtxVersion;
  EXPECT_THAT(refusal(), HasSubstr("Install a newer driver, or build with"));
  EXPECT_EQ(CudaDevice::open(0).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(fake.last_error, 0);
  fake.devices = 0;
  fake.count_error = cudaErrorNoDevice;
  EXPECT_THAT(refusal(), HasSubstr("sees no GPU"));
  fake.count_error = cudaErrorInsufficientDriver;
  fake.driver_version = 12020;
  EXPECT_THAT(refusal(), HasSubstr("driver is for CUDA 12.2, and this program was built with"));
  fake.count_error = 0;
  fake.devices = 1;
  EXPECT_THAT(refusal(), HasSubstr("driver is for CUDA 12.2, and this program was built with"));
  fake.driver_version = 12000;
  fake.runtime_version = 12010;
  EXPECT_THAT(refusal(), HasSubstr("is for CUDA 12.0, and kernels with many arguments need one for "
                                   "12.1. Install a newer driver"));
  fake.driver_version = 0;
  EXPECT_THAT(refusal(), HasSubstr("no NVIDIA driver is installed. Install one"));
  EXPECT_THAT(
      no_gpu(CudaDevice::open(0).error()),
      StartsWith("skipped: no CUDA device (CUDA device 0 cannot be used: no NVIDIA driver "));
}

// Such a driver refuses what it does not know, and does not say that this is why.
TEST(CudaDeviceOpen, AnErrorUnderADriverOlderThanTheToolkitTellsBothVersions) {
  for (const int driver : {12040, 12080, 12090}) {
    reset_fake_cuda();
    FakeCuda& fake = fake_cuda();
    fake.driver_version = driver;
    fake.runtime_version = 12080;
    fake.fail_next["cudaStreamCreateWithFlags"] = cudaErrorInvalidValue;
    const std::string text = refusal();
    EXPECT_THAT(text, HasSubstr("making a stream: a fake error"));
    const char* const hint =
        "The cause may be that the NVIDIA driver is for CUDA 12.4, and this program was built with "
        "CUDA 12.8. Install a newer driver, or build with an older toolkit";
    EXPECT_EQ(text.find(hint) != std::string::npos, driver == 12040) << text;
    EXPECT_EQ(text.find("NVIDIA driver") != std::string::npos, driver == 12040) << text;
    EXPECT_EQ(fake.last_error, 0);
  }
}

}  // namespace
}  // namespace lockstep
