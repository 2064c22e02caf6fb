// What an NcclProcessGroup computes, in which order it calls NCCL, and what it refuses, over the
// NCCL of the tests. Failures in operation are in nccl_failure_test.cc.
#include "reducer/comm/nccl/nccl_process_group.h"

#include <algorithm>
#include <random>
#include <set>

#include "reducer/comm/nccl/test_nccl_ranks.h"

namespace lockstep::testing {
namespace {

using platform::Deadline;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NcclGroup : public NcclRanks {};

constexpr DType kReducible[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                DType::kInt32};

std::vector<std::size_t> counts_around(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  return {0, 1, ranks - 1, ranks, ranks + 1, 2 * ranks, 1000, 4099};
}

void expect_exact_sums(NcclProcessGroup& group, Device* device) {
  for (const DType dtype : kReducible) {
    for (const std::size_t count : counts_around(group.size())) {
      for (const auto reduction : {Reduction::kNative, Reduction::kRankOrdered}) {
        for (const bool verify : {false, true}) {
          Elements elements = part(dtype, group.rank(), count, device);
          Collective sum = sum_of(elements);
          sum.reduction = reduction;
          sum.verify = verify;
          const Status status = run(group, sum);
          ASSERT_TRUE(status.ok()) << status.to_string();
          expect_total(elements, group.size());
        }
      }
    }
  }
}

void expect_exact_moves(NcclProcessGroup& group, Device* device, bool verify) {
  for (const std::size_t count : counts_around(group.size())) {
    Elements elements = part(DType::kFloat64, group.rank(), count, device);
    Collective broadcast = sum_of(elements);
    broadcast.op = Op::kBroadcast;
    broadcast.root = static_cast<int>(count) % group.size();
    broadcast.verify = verify;
    ASSERT_TRUE(run(group, broadcast).ok());
    EXPECT_EQ(elements.bits(), part(DType::kFloat64, broadcast.root, count, device).bits());

    const auto ranks = static_cast<std::size_t>(group.size());
    Elements own = part(DType::kFloat16, group.rank(), count, device);
    Elements all(DType::kFloat16, count * ranks, device);
    Collective gather = sum_of(own);
    gather.op = Op::kAllGather;
    gather.gathered = all.data();
    gather.verify = verify;
    ASSERT_TRUE(run(group, gather).ok());
    for (int rank = 0; rank < group.size(); ++rank)
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(all.get(static_cast<std::size_t>(rank) * count + i), part_of(rank, i));
  }
}

TEST_F(NcclGroup, CollectivesAreExactOnTheGpuAndOnTheHost) {
  for (const int size : {1, 2, 3, 4}) {
    store = std::make_shared<HashStore>();
    connect(size, quick());
    on_ranks(size, [&](int rank) {
      for (Device* where : {&device(rank), static_cast<Device*>(nullptr)}) {
        expect_exact_sums(group(rank), where);
        for (const bool verify : {false, true}) expect_exact_moves(group(rank), where, verify);
      }
    });
    groups.clear();
  }
}

TEST_F(NcclGroup, WithoutAgreementCollectivesAreExactToo) {
  NcclOptions options = quick();
  options.agree = false;
  connect(2, options);
  on_ranks(2, [&](int rank) { expect_exact_sums(group(rank), &device(rank)); });
  // One call for each sum: no headers.
  on_ranks(2, [&](int rank) {
    const int before = nccl.calls("ncclAllGather", rank);
    EXPECT_TRUE(sum_once(group(rank), &device(rank)).ok());
    EXPECT_EQ(nccl.calls("ncclAllGather", rank), before);
  });
}

// Values whose sum depends on the order, of every rank alike on every rank.
std::vector<float> odd_values(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(-12, 12);
  std::vector<float> values(count);
  for (float& value : values) value = std::ldexp(mantissa(random), exponent(random));
  return values;
}

TEST_F(NcclGroup, G3RankOrderedSumsAreFoldedInTheOrderOfTheRanks) {
  constexpr int kRanks = 4;
  connect(kRanks, quick());
  for (const std::size_t count : {999u, 1000u}) {
    std::vector<float> expected = odd_values(0, count);
    for (int rank = 1; rank < kRanks; ++rank) {
      const std::vector<float> part = odd_values(rank, count);
      for (std::size_t i = 0; i < count; ++i)
        expected[i] = static_cast<float>(
            rounded(DType::kFloat32, static_cast<double>(expected[i]) + part[i]));
    }
    on_ranks(kRanks, [&](int rank) {
      for (const auto reduction : {Reduction::kRankOrdered, Reduction::kNative}) {
        Elements elements(DType::kFloat32, count, &device(rank));
        const std::vector<float> own = odd_values(rank, count);
        std::memcpy(elements.bytes(), own.data(), count * sizeof(float));
        Collective sum = sum_of(elements);
        sum.reduction = reduction;
        ASSERT_TRUE(run(group(rank), sum).ok());
        const bool is_alike =
            std::memcmp(elements.bytes(), expected.data(), count * sizeof(float)) == 0;
        // The library of the tests adds from the other end: the values do tell orders apart.
        EXPECT_EQ(is_alike, reduction == Reduction::kRankOrdered);
      }
    });
  }
}

TEST_F(NcclGroup, BeginsWhenReadyHasPassed) {
  connect(2, quick());
  on_ranks(2, [&](int rank) {
    Device& on = device(rank);
    Elements elements(DType::kFloat32, 1000, &on);
    Elements filled = part(DType::kFloat32, rank, 1000, &on);
    // The stream gets there late, and then writes what is to be added.
    std::mutex mutex;
    std::unique_lock hold(mutex);
    QueueDevice::submit(on.native(on.current_stream()), [&] {
      const std::lock_guard lock(mutex);
      std::memcpy(elements.bytes(), filled.bytes(), 4000);
    });
    Collective sum = sum_of(elements);
    sum.ready = on.record(on.current_stream());
    Work work;
    ASSERT_TRUE(group(rank).start(sum, work).ok());
    EXPECT_FALSE(work.done());
    hold.unlock();
    ASSERT_TRUE(work.wait(Deadline::in(kGenerous)).ok());
    expect_total(elements, 2);
  });
}

TEST_F(NcclGroup, ManyCollectivesInFlightEndInTheirOrder) {
  connect(3, quick());
  on_ranks(3, [&](int rank) {
    constexpr std::size_t kMany = 100;
    std::vector<Elements> data;
    std::vector<std::unique_ptr<Work>> works;
    for (std::size_t i = 0; i < kMany; ++i) {
      data.push_back(part(DType::kFloat32, rank, 50 + i, i % 3 == 0 ? nullptr : &device(rank)));
      works.push_back(std::make_unique<Work>());
    }
    for (std::size_t i = 0; i < kMany; ++i) {
      Collective sum = sum_of(data[i]);
      if (i % 2 == 0) sum.reduction = Reduction::kRankOrdered;
      ASSERT_TRUE(group(rank).start(sum, *works[i]).ok());
    }
    for (std::size_t i = kMany; i-- > 0;) {
      ASSERT_TRUE(works[i]->wait(Deadline::in(kGenerous)).ok());
      EXPECT_EQ(works[i]->sequence(), static_cast<std::int64_t>(i));
      expect_total(data[i], 3);
    }
  });
}

TEST_F(NcclGroup, CallsNcclInTheDocumentedOrder) {
  NcclOptions options = quick();
  connect(2, options);
  on_ranks(2, [&](int rank) { EXPECT_TRUE(sum_once(group(rank), &device(rank)).ok()); });
  on_ranks(2, [&](int rank) { groups[static_cast<std::size_t>(rank)].reset(); });
  EXPECT_THAT(nccl.order(1), ElementsAre("ncclCommInitRankConfig", "ncclAllGather", "ncclAllReduce",
                                         "ncclCommFinalize", "ncclCommDestroy"));
  EXPECT_EQ(nccl.calls("ncclGetUniqueId", kNone), 1);
}

TEST_F(NcclGroup, WaitsForAsLongAsNcclIsInProgress) {
  nccl.looks_in_progress = 20;
  connect(2, quick());
  on_ranks(2, [&](int rank) {
    const int before = nccl.calls("ncclCommGetAsyncError", rank);
    EXPECT_TRUE(sum_once(group(rank), &device(rank)).ok());
    EXPECT_GE(nccl.calls("ncclCommGetAsyncError", rank) - before, 40);
  });
}

// A thread has the GPU of its own choice current, also those of the group.
TEST_F(NcclGroup, EachOfItsThreadsIsPrepared) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  NcclOptions options = quick();
  options.enter_thread = [&] {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  };
  connect(1, options);
  groups.clear();
  EXPECT_EQ(threads.size(), 3u);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0u);
}

TEST_F(NcclGroup, ReachesItsGpuAndTheHost) {
  connect(1, quick());
  const QueueDevice other;
  const HostDevice host;
  EXPECT_TRUE(group(0).can_reach(device(0)));
  EXPECT_TRUE(group(0).can_reach(host));
  EXPECT_FALSE(group(0).can_reach(other));
  EXPECT_TRUE(group(0).can_reduce(DType::kBFloat16));
  EXPECT_FALSE(group(0).can_reduce(DType::kByte));
  EXPECT_FALSE(group(0).can_scale(DType::kFloat32));
}

TEST_F(NcclGroup, RefusesWhatItCannotDoAndGoesOn) {
  connect(1, quick());
  QueueDevice other;
  Elements elements = part(DType::kFloat32, 0, 10, &device(0));
  const auto refused = [&](auto change) {
    Collective sum = sum_of(elements);
    change(sum);
    Work work;
    EXPECT_EQ(group(0).start(sum, work).code(), Code::kInvalidArgument);
    EXPECT_TRUE(work.done());
  };
  refused([](Collective& sum) { sum.dtype = DType::kByte; });
  refused([](Collective& sum) { sum.data = nullptr; });
  refused([](Collective& sum) { sum.count = std::uint64_t{1} << 62; });
  refused([](Collective& sum) { sum.factor = 0.5; });
  refused([&](Collective& sum) { sum.device = &other; });
  refused([&](Collective& sum) { sum.ready = other.record(other.current_stream()); });
  refused([&](Collective& sum) {
    sum.device = nullptr;
    sum.ready = device(0).record(device(0).current_stream());
  });
  refused([](Collective& sum) { sum.op = Op::kAllGather; });
  refused([](Collective& sum) {
    sum.op = Op::kBroadcast;
    sum.root = 1;
  });
  EXPECT_TRUE(sum_once(group(0), &device(0)).ok());
}

// The other side of what every test of this folder expects: ThreadNccl notices calls against the
// rules.
TEST(ThreadNccl, NoticesCallsAgainstTheRules) {
  ThreadNccl nccl;
  QueueDevice device;
  const NcclApi api = nccl.api();
  NcclUniqueId id;
  NcclComm comm = nullptr;
  NcclConfig config = make_nccl_config(22809);
  config.blocking = 1;
  EXPECT_EQ(api.get_unique_id(&id), NcclResult::kSuccess);
  EXPECT_EQ(api.comm_init_rank_config(&comm, 1, id, 0, &config), NcclResult::kInProgress);
  EXPECT_THAT(nccl.broken_rules(), ElementsAre("a communicator that blocks"));
  nccl.set_script([&](const std::string& function, int, int before) {
    NcclResult state;
    if (function == "ncclAllReduce" && before == 0) api.comm_get_async_error(comm, &state);
    return NcclResult::kSuccess;
  });
  Elements value(DType::kFloat32, 1, &device);
  void* const stream = device.native(device.current_stream());
  EXPECT_EQ(api.all_reduce(value.data(), value.data(), 1, NcclDataType::kFloat32, NcclRedOp::kSum,
                           comm, stream),
            NcclResult::kInProgress);
  EXPECT_EQ(api.comm_abort(comm), NcclResult::kSuccess);
  EXPECT_EQ(api.comm_destroy(comm), NcclResult::kSuccess);
  EXPECT_THAT(nccl.broken_rules(),
              ElementsAre("a communicator that blocks", "ncclCommGetAsyncError beside another call",
                          "ncclCommDestroy after the communicator's end",
                          "ncclCommDestroy after a failure"));
}

// --- Connecting.

class NcclConnect : public NcclRanks {
 protected:
  Status try_connect(int rank, int size, const NcclOptions& options) {
    make_devices(std::max(size, rank + 1));
    const auto made =
        NcclProcessGroup::connect(nccl.api(), device(rank), store, rank, size, options);
    return made.has_value() ? Status() : made.error();
  }
};

TEST_F(NcclConnect, OptionsOutOfRangeAreRefused) {
  NcclOptions options = quick();
  options.timeout = platform::Duration::max();
  EXPECT_EQ(try_connect(0, 1, options).code(), Code::kInvalidArgument);
  // Whoever waits for what is in flight gives up after a minute.
  options = quick();
  options.grace = std::chrono::seconds(10);
  options.end_timeout = std::chrono::seconds(20);
  EXPECT_TRUE(try_connect(0, 1, options).ok());
  options.name = "longer";
  options.end_timeout += std::chrono::milliseconds(1);
  const Status too_long = try_connect(0, 1, options);
  EXPECT_EQ(too_long.code(), Code::kInvalidArgument);
  EXPECT_THAT(too_long.to_string(), HasSubstr("50 s at most"));
  options = quick();
  options.name = "";
  EXPECT_EQ(try_connect(0, 1, options).code(), Code::kInvalidArgument);
  EXPECT_EQ(try_connect(1, 1, quick()).code(), Code::kInvalidArgument);
  options.name = "right";
  EXPECT_TRUE(try_connect(0, 1, options).ok());
}

TEST_F(NcclConnect, ANameThatWasUsedIsRefusedByAllRanks) {
  connect(1, quick());
  on_ranks(2, [&](int rank) {
    if (rank == 1) return;
    const Status status = try_connect(0, 1, quick());
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.to_string(), HasSubstr("under the name 'nccl'"));
  });
  NcclOptions other = quick();
  other.name = "nccl-2";
  EXPECT_TRUE(try_connect(0, 1, other).ok());
}

TEST_F(NcclConnect, RanksThatDoNotComeAreNamedAtTheDeadline) {
  NcclOptions options = quick();
  options.connect_timeout = kShort;
  make_devices(3);
  std::vector<Status> statuses(3);
  on_ranks(3, [&](int rank) {
    if (rank != 1) statuses[static_cast<std::size_t>(rank)] = try_connect(rank, 3, options);
  });
  for (const int rank : {0, 2}) {
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    ASSERT_EQ(status.code(), Code::kTimeout) << status.to_string();
    EXPECT_EQ(status.failure().suspect, 1);
    EXPECT_EQ(status.failure().reported_by, rank);
    EXPECT_THAT(status.to_string(), HasSubstr("rank 1 has not come"));
    EXPECT_EQ(nccl.calls("ncclCommAbort", rank), 1);
    EXPECT_EQ(nccl.calls("ncclCommDestroy", rank), 0);
  }
}

TEST_F(NcclConnect, AMissingRankZeroIsNamed) {
  NcclOptions options = quick();
  options.connect_timeout = kShort;
  const Status status = try_connect(1, 2, options);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.failure().suspect, 0);
}

TEST_F(NcclConnect, OneRanksFailureIsHeardByTheOthersBeforeTheirDeadline) {
  nccl.set_script([](const std::string& function, int rank, int) {
    const bool is_it = function == "ncclCommInitRankConfig" && rank == 1;
    return is_it ? NcclResult::kSystemError : NcclResult::kSuccess;
  });
  make_devices(3);
  std::vector<Status> statuses(3);
  on_ranks(3, [&](int rank) {
    statuses[static_cast<std::size_t>(rank)] = try_connect(rank, 3, quick());
  });
  for (int rank = 0; rank < 3; ++rank) {
    const Failure& failure = statuses[static_cast<std::size_t>(rank)].failure();
    EXPECT_EQ(failure.code, Code::kTransport);
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(failure.reported_by, rank);
    EXPECT_THAT(failure.detail, HasSubstr("ncclCommInitRankConfig: what NCCL says"));
    EXPECT_THAT(failure.detail, HasSubstr("ncclSystemError"));
  }
}

// Notes whether rank 0 had ended its communicator when it wrote what it failed with.
class WatchedStore final : public HashStore {
 public:
  explicit WatchedStore(ThreadNccl& nccl) : nccl_(nccl) {}
  Result<bool> set(std::string_view key, std::string_view value) override {
    if (key == "nccl/failure") aborts_before_ = nccl_.calls("ncclCommAbort", 0);
    return HashStore::set(key, value);
  }
  int aborts_before() const { return aborts_before_; }

 private:
  ThreadNccl& nccl_;
  int aborts_before_ = kNone;
};

// A peer that has its communicator sees the end of this one in its first collective.
TEST_F(NcclConnect, F2TheCauseIsInTheStoreBeforeTheCommunicatorEnds) {
  const auto watched = std::make_shared<WatchedStore>(nccl);
  store = watched;
  nccl.gpu = 3;  // of CUDA; the device is GPU 0
  const Status status = try_connect(0, 1, quick());
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  EXPECT_EQ(watched->aborts_before(), 0);
  EXPECT_EQ(nccl.calls("ncclCommAbort", 0), 1);
}

TEST_F(NcclConnect, RankZeroWithoutAnIdIsHeardOf) {
  nccl.set_script([](const std::string& function, int, int) {
    return function == "ncclGetUniqueId" ? NcclResult::kInternalError : NcclResult::kSuccess;
  });
  make_devices(2);
  on_ranks(2, [&](int rank) {
    const Status status = try_connect(rank, 2, quick());
    EXPECT_EQ(status.code(), Code::kTransport);
    EXPECT_EQ(status.failure().rank, 0) << status.to_string();
  });
}

TEST_F(NcclConnect, ACommunicatorOnAnotherGpuIsToldWhatToDo) {
  make_devices(2);
  nccl.gpu = 3;  // of CUDA; the devices are GPU 0, as everywhere else
  on_ranks(2, [&](int rank) {
    const Status status = try_connect(rank, 2, quick());
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_THAT(status.to_string(),
                HasSubstr("on CUDA device 3, and the group's is CUDA device 0"));
    EXPECT_THAT(status.to_string(), HasSubstr("cudaSetDevice"));
    EXPECT_EQ(nccl.calls("ncclCommAbort", rank), 1);
  });
}

// A device has so many and no more, and each reset makes a group.
TEST_F(NcclConnect, TheStreamOfAGroupIsGivenBackWithItsEndAndOnce) {
  make_devices(1);
  nccl.gpu = 1;
  EXPECT_FALSE(try_connect(0, 1, quick()).ok());
  EXPECT_EQ(devices[0]->given_back(), 1);
  nccl.gpu = 0;
  NcclOptions options = quick();
  options.name = "another";
  connect(1, options);
  ASSERT_TRUE(sum_once(group(0), &device(0)).ok());
  EXPECT_EQ(devices[0]->given_back(), 1);
  groups.clear();
  EXPECT_EQ(devices[0]->given_back(), 2);
}

TEST_F(NcclConnect, ADriverThatIsTooOldForNcclIsToldWithWhatToDo) {
  nccl.last_error = "Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'";
  nccl.set_script([](const std::string& function, int, int) {
    const bool is_it = function == "ncclCommInitRankConfig";
    return is_it ? NcclResult::kUnhandledCudaError : NcclResult::kSuccess;
  });
  make_devices(1);
  const Status status = try_connect(0, 1, quick());
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.to_string(),
              HasSubstr("install a newer driver, or an NCCL for an older CUDA"));
}

TEST_F(NcclConnect, TwoRanksOnOneGpuAreToldWhatToDo) {
  nccl.last_error = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000";
  nccl.set_script([](const std::string& function, int rank, int) {
    const bool is_it = function == "ncclCommGetAsyncError" && rank != kNone;
    return is_it ? NcclResult::kInvalidUsage : NcclResult::kSuccess;
  });
  make_devices(2);
  on_ranks(2, [&](int rank) {
    const Status status = try_connect(rank, 2, quick());
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.to_string(), HasSubstr("NCCL_HOSTID"));
    EXPECT_THAT(status.to_string(), HasSubstr("CUDA device 1000"));
  });
}

}  // namespace
}  // namespace lockstep::testing
