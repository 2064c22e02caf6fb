// NcclProcessGroup, as it is, over SimNccl and SimDevice: in many schedules nothing it does on the
// GPU is a race, it breaks no rule of NCCL's, and what goes wrong ends on every rank, with one
// first cause. What it promises over every NCCL is in test_nccl_group_conformance.h.
#include "reducer/comm/nccl/nccl_process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>

#include "faults/sim/nccl/test_nccl_run.h"
#include "faults/sim/scheduler/test_leaks.h"

namespace lockstep::simulated {
namespace {

using faults::Kind;
using simulation::End;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

using Group = std::unique_ptr<NcclProcessGroup>;

struct Member {
  SimRank& on;
  NcclProcessGroup& group;
  std::shared_ptr<Store> store;

  Tensor data(std::size_t count = 9) const {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>((on.rank() + 1) * static_cast<int>(i % 5 + 1));
    return on.made(values);
  }
  Collective sum_of(const Tensor& tensor) const {
    Collective sum;
    sum.count = static_cast<std::uint64_t>(tensor.elements());
    sum.data = tensor.data();
    sum.device = &on.device();
    sum.ready = on.device().record(on.stream());
    return sum;
  }
  // The sum of all ranks in `total`: (1 + 2 + ...) times what rank 0 has.
  void expect_total(const Tensor& tensor) const {
    const std::vector<float> got = on.values(tensor);
    const int ranks = group.size();
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i], static_cast<float>(ranks * (ranks + 1) / 2 * static_cast<int>(i % 5 + 1)));
  }
  Status sum(const std::function<void(Collective&)>& change = {}) const {
    const Tensor tensor = data();
    Collective collective = sum_of(tensor);
    if (change) change(collective);
    return sim::run(group, collective);
  }
};

// Short, as ranks that are done look for the others every microsecond.
constexpr platform::Duration kLong = 200ms;
constexpr platform::Duration kShort = 5ms;

NcclOptions options_of(platform::Duration timeout) {
  NcclOptions options;
  options.timeout = timeout;
  options.connect_timeout = kLong;
  options.poll = 50us;
  options.notice = 500us;
  options.grace = 1ms;
  options.end_timeout = 20ms;
  return options;
}

// What came of a program in each of many schedules.
struct Circumstances {
  int ranks = 3;
  NcclOptions options = options_of(kLong);
  std::function<void(NcclRun&)> run;
  std::function<void(int rank, NcclOptions&)> of_rank;  // options of single ranks
};
using Body = std::function<void(Member&)>;

void in_many_schedules(const Circumstances& setup, const Body& body) {
  for (const simulation::Schedule& schedule : many_schedules(15)) {
    NcclRun run(setup.ranks);
    run.schedule = schedule;
    if (schedule.seed % 3 == 1) run.latency = {Duration(100), Duration(10'000)};
    if (setup.run) setup.run(run);
    auto store = std::make_shared<HashStore>();
    const End end = run.run([&](SimRank& on) {
      NcclOptions options = setup.options;
      if (setup.of_rank) setup.of_rank(on.rank(), options);
      auto group =
          NcclProcessGroup::connect(on.api(), on.device(), store, on.rank(), on.ranks(), options);
      ASSERT_TRUE(group.has_value()) << group.error().to_string();
      Member member{on, **group, store};
      body(member);
      group->reset();
    });
    EXPECT_EQ(end, End::kFinished) << run.wait_graph;
    EXPECT_EQ(run.findings_text(), "");
    EXPECT_THAT(run.misuses, ::testing::IsEmpty());
    EXPECT_EQ(run.left_open, 0U);
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "policy " << static_cast<int>(schedule.policy) << ", seed " << schedule.seed;
      return;
    }
  }
}

faults::Fault fault_of_rank_1(Kind kind) {
  faults::Fault fault;
  fault.kind = kind;
  fault.rank = 1;
  return fault;
}

std::string first_of_rank_1() {
  Failure failure;
  failure.code = Code::kCorrupted;
  failure.rank = failure.reported_by = 1;
  failure.definite = true;
  failure.detail = "noticed before";
  return encode(failure);
}

// A gradient that the GPU is still writing when its collective is started.
struct Late {
  explicit Late(const Member& m) : tensor(m.on.made(9)) {
    auto* const values = reinterpret_cast<float*>(tensor.data());
    const auto value = static_cast<float>(m.on.rank() + 1);
    m.on.device().submit(m.on.stream(), "backward", {{tensor.data(), 36, true}},
                         [=] { std::fill(values, values + 9, value); });
  }
  Tensor tensor;
};

TEST(NcclGroupInSimulator, BeginsWhenReadyHasPassed) {
  for (const auto reduction : {Reduction::kNative, Reduction::kRankOrdered}) {
    in_many_schedules({}, [&](Member& m) {
      const Late late(m);
      Collective sum = m.sum_of(late.tensor);
      sum.reduction = reduction;
      const Status status = sim::run(m.group, sum);
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(m.on.values(late.tensor), std::vector<float>(9, 6));
      m.on.meet();
    });
  }
}

// The other side: whoever does not say when it is ready has a race, which is seen.
TEST(NcclGroupInSimulator, WithoutReadyThereIsARace) {
  NcclRun run(2);
  auto store = std::make_shared<HashStore>();
  const End end = run.run([&](SimRank& on) {
    auto group =
        NcclProcessGroup::connect(on.api(), on.device(), store, on.rank(), 2, options_of(kLong));
    ASSERT_TRUE(group.has_value());
    const Member m{on, **group, store};
    const Late late(m);
    Collective sum = m.sum_of(late.tensor);
    sum.ready = {};
    EXPECT_TRUE(sim::run(m.group, sum).ok());
    on.meet();
  });
  EXPECT_EQ(end, End::kFinished);
  EXPECT_THAT(run.findings_text(), HasSubstr("backward"));
}

// More than the group submits at once.
TEST(NcclGroupInSimulator, ManyInFlightEndInTheirOrder) {
  Circumstances setup;
  setup.ranks = 2;
  in_many_schedules(setup, [](Member& m) {
    std::vector<Tensor> data;
    std::vector<std::unique_ptr<Work>> works;
    for (std::size_t i = 0; i < 20; ++i) {
      data.push_back(m.data(i + 1));
      works.push_back(std::make_unique<Work>());
      Collective sum = m.sum_of(data.back());
      if (i % 3 == 0) sum.reduction = Reduction::kRankOrdered;
      ASSERT_TRUE(m.group.start(sum, *works.back()).ok());
    }
    for (std::size_t i = works.size(); i-- > 0;) {
      ASSERT_TRUE(works[i]->wait(platform::Deadline::never()).ok());
      m.expect_total(data[i]);
    }
    m.on.meet();
  });
}

TEST(NcclGroupInSimulator, F6AMismatchIsToldByAll) {
  const std::function<void(Collective&)> changes[] = {
      [](Collective& c) { c.count = 3; },
      [](Collective& c) { c.bucket = 3; },
      [](Collective& c) { c.reduction = Reduction::kRankOrdered; },
      [](Collective& c) {
        c.op = Op::kBroadcast;
        c.root = 1;
      },
  };
  for (const auto& change : changes) {
    in_many_schedules({}, [&](Member& m) {
      const Status status = m.sum(m.on.rank() == 1 ? change : [](Collective&) {});
      ASSERT_EQ(status.code(), Code::kMismatch) << status.to_string();
      EXPECT_EQ(status.failure().suspect, 1);
      m.on.meet();
    });
  }
}

// Every function, at several of its calls; what a call begins fails at once, later, or never ends.
TEST(NcclGroupInSimulator, F2WhateverCallFailsAllRanksTellOneFirstCause) {
  const char* const functions[] = {"ncclAllGather", "ncclAllReduce", "ncclSend", "ncclRecv"};
  for (const auto kind :
       {SimNcclFault::Kind::kResult, SimNcclFault::Kind::kAsyncError, SimNcclFault::Kind::kHang}) {
    for (const char* function : functions) {
      std::set<std::string> causes;
      Circumstances setup;
      setup.options = options_of(kShort);
      setup.run = [&](NcclRun& run) {
        run.options.faults = {{kind, 1, function, 2, NcclResult::kInternalError}};
        causes.clear();
      };
      in_many_schedules(setup, [&](Member& m) {
        Status status;
        for (int i = 0; i < 4 && status.ok(); ++i)
          status = m.sum([i](Collective& c) {
            if (i % 2 == 1) c.reduction = Reduction::kRankOrdered;
          });
        ASSERT_FALSE(status.ok());
        Failure failure = status.failure();
        EXPECT_EQ(failure.reported_by, m.on.rank());
        failure.reported_by = kNone;
        failure.later.clear();
        causes.insert(failure.to_string());
        m.on.meet();
        EXPECT_EQ(causes.size(), 1U) << ::testing::PrintToString(causes);
        if (kind != SimNcclFault::Kind::kHang) {
          EXPECT_EQ(failure.rank, 1) << status.to_string();
          EXPECT_EQ(failure.code, Code::kTransport) << status.to_string();
        } else {
          EXPECT_EQ(failure.code, Code::kTimeout) << status.to_string();
        }
      });
    }
  }
}

// A store in which something happens while a key is set.
class StoreWith final : public Store {
 public:
  StoreWith(std::shared_ptr<Store> inner, std::string key, std::function<void()> happens)
      : inner_(std::move(inner)), key_(std::move(key)), happens_(std::move(happens)) {}
  Result<bool> set(std::string_view key, std::string_view value) override {
    if (key == key_) happens_();
    return inner_->set(key, value);
  }
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override {
    return inner_->get(key, deadline);
  }
  Result<bool> contains(std::string_view key) override { return inner_->contains(key); }

 private:
  const std::shared_ptr<Store> inner_;
  const std::string key_;
  const std::function<void()> happens_;
};

// What a group hears while it makes its first cause known, be that its own or another one's.
TEST(NcclGroupInSimulator, F2WhatIsToldWhileTheCauseIsPublishedIsKept) {
  for (const bool is_second : {false, true}) {
    for (const simulation::Schedule& schedule : many_schedules(5)) {
      NcclRun run(2);
      run.schedule = schedule;
      run.options.faults = {
          {SimNcclFault::Kind::kResult, 0, "ncclAllReduce", 1, NcclResult::kInternalError}};
      const auto store = std::make_shared<HashStore>();
      int published = 0;
      const End end = run.run([&](SimRank& on) {
        NcclProcessGroup* group = nullptr;
        const auto meanwhile = [&, rank = on.rank()] {
          if (rank != 0) return;
          ++published;
          group->abort(Status(Code::kUserFailure, "told meanwhile"));
          if (!is_second) return;
          EXPECT_TRUE(store->set("nccl/failure", first_of_rank_1()).has_value());
        };
        auto made = NcclProcessGroup::connect(
            on.api(), on.device(), std::make_shared<StoreWith>(store, "nccl/failure", meanwhile),
            on.rank(), 2, options_of(kLong));
        ASSERT_TRUE(made.has_value());
        group = made->get();
        const Status status = Member{on, *group, store}.sum();
        EXPECT_EQ(status.code(), is_second ? Code::kCorrupted : Code::kTransport)
            << status.to_string();
        if (on.rank() == 0) {
          EXPECT_THAT(status.failure().later,
                      ::testing::Contains(HasSubstr("told meanwhile")).Times(1))
              << status.to_string();
        }
        on.meet();
      });
      ASSERT_EQ(end, End::kFinished) << run.wait_graph;
      EXPECT_EQ(published, 1);
    }
  }
}

// A report that is damaged says nothing but that its writer has ended the group.
TEST(NcclGroupInSimulator, F2ADamagedReportIsNoCauseOfItsOwn) {
  for (const simulation::Schedule& schedule : many_schedules(5)) {
    NcclRun run(2);
    run.schedule = schedule;
    const auto store = std::make_shared<HashStore>();
    const End end = run.run([&](SimRank& on) {
      auto group =
          NcclProcessGroup::connect(on.api(), on.device(), store, on.rank(), 2, options_of(kLong));
      ASSERT_TRUE(group.has_value());
      if (on.rank() == 0) {
        EXPECT_TRUE(store->set("nccl/failure", "torn").has_value());
        const Status status = Member{on, **group, store}.sum();
        EXPECT_EQ(status.code(), Code::kPeerLost) << status.to_string();
        EXPECT_THAT(status.to_string(), HasSubstr("could not be read"));
      }
      on.meet();
    });
    ASSERT_EQ(end, End::kFinished) << run.wait_graph;
  }
}

// More than the group has places for at first, while some of them are under way.
TEST(NcclGroupInSimulator, ManyCollectivesMayBeInFlight) {
  constexpr std::size_t kCollectives = 80;
  in_many_schedules({}, [](Member& m) {
    std::deque<sim::Work> works(kCollectives);
    std::vector<Tensor> tensors;
    for (sim::Work& work : works) {
      tensors.push_back(m.data(3));
      const Status status = m.group.start(m.sum_of(tensors.back()), work);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    for (std::size_t i = 0; i < kCollectives; ++i) {
      ASSERT_TRUE(works[i].wait(platform::Deadline::in(kLong)).ok()) << i;
      m.expect_total(tensors[i]);
    }
  });
}

// F1: the deadline of a collective begins when the one before it has ended, so what is queued does
// not time out while the group makes progress.
TEST(NcclGroupInSimulator, F1AQueueOfCollectivesOutlivesTheTimeout) {
  constexpr std::size_t kCollectives = 20;
  Circumstances setup;
  setup.options = options_of(kShort);
  setup.run = [](NcclRun& run) { run.latency = {Duration(200us), Duration(0)}; };
  in_many_schedules(setup, [](Member& m) {
    const platform::Duration begin = platform::now();
    std::deque<sim::Work> works(kCollectives);
    std::vector<Tensor> tensors;
    for (sim::Work& work : works) {
      tensors.push_back(m.data());
      ASSERT_TRUE(m.group.start(m.sum_of(tensors.back()), work).ok());
    }
    for (std::size_t i = 0; i < kCollectives; ++i) {
      const Status status = works[i].wait(platform::Deadline::in(kLong));
      ASSERT_TRUE(status.ok()) << i << ": " << status.to_string();
      m.expect_total(tensors[i]);
    }
    EXPECT_GT(platform::now() - begin, 2 * kShort);  // or the test shows nothing
  });
}

// Whoever hears of it first: links of rank 1 break, or what it sends or begins does not end.
TEST(NcclGroupInSimulator, F2WhateverHappensToARankAllTellOneFirstCause) {
  const std::pair<Kind, Code> faults[] = {{Kind::kLinkReset, Code::kPeerLost},
                                          {Kind::kMessageStall, Code::kTimeout},
                                          {Kind::kOperationStall, Code::kTimeout},
                                          {Kind::kOperationError, Code::kTransport},
                                          {Kind::kCallError, Code::kTransport}};
  for (const auto& [kind, code] : faults) {
    std::set<std::string> causes;
    Circumstances setup;
    setup.options = options_of(kShort);
    setup.run = [&, of = kind](NcclRun& run) {
      run.plan.faults = {fault_of_rank_1(of)};
      causes.clear();
    };
    in_many_schedules(setup, [&, expected = code](Member& m) {
      const Status status = m.sum();
      ASSERT_EQ(status.code(), expected) << status.to_string();
      Failure failure = status.failure();
      failure.reported_by = kNone;
      failure.later.clear();
      causes.insert(failure.to_string());
      m.on.meet();
      EXPECT_EQ(causes.size(), 1U) << ::testing::PrintToString(causes);
    });
  }
}

// What rank 1 sends to rank 2 is changed, in either exchange of a checked sum: rank 2 says so, and
// who sent it; all ranks tell that.
TEST(NcclGroupInSimulator, F3WhatIsChangedOnItsWayIsNoticedWithItsSender) {
  for (const Kind kind : {Kind::kPayloadFlip, Kind::kPayloadTruncate, Kind::kPayloadSwap,
                          Kind::kPayloadStale, Kind::kPayloadShift}) {
    for (const std::uint32_t site : {2U, 3U}) {
      Circumstances setup;
      setup.run = [&](NcclRun& run) {
        faults::Fault fault = fault_of_rank_1(kind);
        fault.site = site;
        fault.peer = 2;
        fault.at = 67;
        run.plan.faults = {fault};
        run.options.disturbs_frames = true;
      };
      in_many_schedules(setup, [&](Member& m) {
        const auto checked = [](Collective& c) {
          c.reduction = Reduction::kRankOrdered;
          c.verify = true;
        };
        Status status = m.sum(checked);
        EXPECT_TRUE(status.ok()) << status.to_string();
        // Whose second sum was right hears of it in the third.
        for (int i = 0; i < 2 && status.ok(); ++i) status = m.sum(checked);
        ASSERT_EQ(status.code(), Code::kCorrupted) << status.to_string();
        EXPECT_EQ(status.failure().suspect, 1) << status.to_string();
        m.on.meet();
      });
    }
  }
}

// Headers, sums of NCCL's own and broadcasts are no frames, and nothing is where that is off.
TEST(NcclGroupInSimulator, F3OnlyFramesAreDisturbed) {
  for (const bool is_on : {false, true}) {
    Circumstances setup;
    setup.run = [is_on](NcclRun& run) {
      run.options.disturbs_frames = is_on;
      for (const std::uint32_t site : {0U, 1U, 2U}) {
        faults::Fault fault = fault_of_rank_1(Kind::kPayloadFlip);
        fault.site = site;
        fault.peer = 2;
        run.plan.faults.push_back(fault);
      }
    };
    in_many_schedules(setup, [is_on](Member& m) {
      const Tensor data = m.data();
      Collective sum = m.sum_of(data);
      sum.reduction = is_on ? Reduction::kNative : Reduction::kRankOrdered;
      EXPECT_TRUE(sim::run(m.group, sum).ok());
      Collective broadcast = m.sum_of(data);
      broadcast.op = Op::kBroadcast;
      EXPECT_TRUE(sim::run(m.group, broadcast).ok());
      m.expect_total(data);
    });
  }
}

// A group that does not check what it should is found: its sums go by sends, too.
TEST(NcclGroupInSimulator, F3WhatIsSentUncheckedIsDisturbedToo) {
  Circumstances setup;
  setup.ranks = 2;
  setup.run = [](NcclRun& run) {
    run.options.disturbs_frames = true;
    faults::Fault fault = fault_of_rank_1(Kind::kPayloadFlip);
    fault.at = 31;  // the sign
    run.plan.faults = {fault};
  };
  in_many_schedules(setup, [](Member& m) {
    const Tensor data = m.on.made(std::vector<float>(2, 1));
    Collective sum = m.sum_of(data);
    sum.reduction = Reduction::kRankOrdered;
    EXPECT_TRUE(sim::run(m.group, sum).ok());
    EXPECT_EQ(m.on.values(data), (std::vector<float>{0, 2}));
  });
}

TEST(NcclGroupInSimulator, F5DestructionWithWorkInFlightEndsIt) {
  in_many_schedules({}, [](Member& m) {
    const Tensor tensor = m.data();
    Work work;
    if (m.on.rank() == 0) {
      auto other = NcclProcessGroup::connect(m.on.api(), m.on.device(), m.store, 0, 1, [] {
        NcclOptions options = options_of(kLong);
        options.name = "of one";
        return options;
      }());
      ASSERT_TRUE(other.has_value());
      ASSERT_TRUE((*other)->start(m.sum_of(tensor), work).ok());
      other->reset();
      EXPECT_TRUE(work.done());
    }
    m.on.meet();
  });
}

// pytorch#13815, #39194: its threads may not have begun.
TEST(NcclGroupInSimulator, F5AGroupMayEndAsSoonAsItIsThere) {
  in_many_schedules({}, [](Member&) {});
}

// Every process of the simulated NCCL has GPU 0 current.
TEST(NcclGroupInSimulator, ACommunicatorOnAnotherGpuIsRefused) {
  NcclRun run(2);
  run.device.index = 2;  // GPU 1 of CUDA
  auto store = std::make_shared<HashStore>();
  const End end = run.run([&](SimRank& on) {
    const auto group = NcclProcessGroup::connect(on.api(), on.device(), store, on.rank(),
                                                 on.ranks(), options_of(kLong));
    ASSERT_FALSE(group.has_value());
    EXPECT_EQ(group.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(group.error().to_string(), HasSubstr("on CUDA device 0, and the group's is"));
  });
  EXPECT_EQ(end, End::kFinished) << run.wait_graph;
  EXPECT_EQ(run.left_open, 0U);
}

// pytorch#143470: what a thread has begun outlives it.
TEST(NcclGroupInSimulator, F5WhatAShortLivedThreadHasBegunEndsWithoutIt) {
  in_many_schedules({}, [](Member& m) {
    const Tensor tensor = m.data();
    Work work;
    platform::Thread starter("starter",
                             [&] { EXPECT_TRUE(m.group.start(m.sum_of(tensor), work).ok()); });
    starter.join();
    EXPECT_TRUE(work.wait(platform::Deadline::never()).ok());
    m.expect_total(tensor);
  });
}

// Idle, after a timeout with and without a communicator that is kept, and after a lost link, which
// NCCL cannot shrink.
TEST(NcclGroupInSimulator, F4TheOthersGoOnInASmallerGroup) {
  enum class Before { kNothing, kTimeout, kTimeoutKept, kErrorKept };
  for (const auto before :
       {Before::kNothing, Before::kTimeout, Before::kTimeoutKept, Before::kErrorKept}) {
    Circumstances setup;
    setup.options = options_of(kShort);
    setup.options.keeps_for_shrink = before == Before::kTimeoutKept || before == Before::kErrorKept;
    if (before == Before::kErrorKept)
      setup.run = [](NcclRun& run) { run.plan.faults = {fault_of_rank_1(Kind::kLinkReset)}; };
    in_many_schedules(setup, [&](Member& m) {
      if (m.on.rank() == 1) {  // leaves when the others are done
        if (before == Before::kErrorKept) m.sum().ignore();
        return m.on.meet();
      }
      const Status first = before == Before::kNothing ? Status() : m.sum();
      EXPECT_EQ(first.ok(), before == Before::kNothing);
      NcclOptions options = setup.options;
      options.name = "smaller";
      auto smaller = NcclProcessGroup::shrink(m.group, {1}, m.store, options);
      ASSERT_TRUE(smaller.has_value()) << smaller.error().to_string();
      const bool by_nccl = before == Before::kNothing || before == Before::kTimeoutKept;
      EXPECT_STREQ((*smaller)->origin(), by_nccl ? "ncclCommShrink" : "ncclCommInitRankConfig");
      const Tensor ones = m.on.made(std::vector<float>(5, 1));
      const Status status = sim::run(**smaller, m.sum_of(ones));
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(m.on.values(ones), std::vector<float>(5, 2));
      m.on.meet();
    });
  }
}

// All end one sum, and ranks 0 and 2 then go on without rank 1, each as soon as its own is over.
// What a peer has still to receive of that sum comes all the same.
TEST(NcclGroupInSimulator, F4ShrinkingAHealthyGroupLeavesThePeersTheirLastCollective) {
  for (const int version : {22809, 22604}) {  // with ncclCommShrink, and without
    Circumstances setup;
    setup.run = [version](NcclRun& run) {
      run.options.version = version;
      run.options.aborts_lose = true;
      run.latency = {50us, 2ms};  // more than `notice`
    };
    in_many_schedules(setup, [&](Member& m) {
      const Tensor tensor = m.data();
      const Status last = sim::run(m.group, m.sum_of(tensor));
      ASSERT_TRUE(last.ok()) << "rank " << m.on.rank() << ": " << last.to_string();
      m.expect_total(tensor);
      if (m.on.rank() == 1) return;
      NcclOptions options = setup.options;
      options.name = "smaller";
      auto smaller = NcclProcessGroup::shrink(m.group, {1}, m.store, options);
      ASSERT_TRUE(smaller.has_value()) << smaller.error().to_string();
      const Tensor ones = m.on.made(std::vector<float>(5, 1));
      const Status status = sim::run(**smaller, m.sum_of(ones));
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(m.on.values(ones), std::vector<float>(5, 2));
    });
  }
}

// A rank in a collective that the others do not enter because they shrink the group gets kAborted
// at once, and takes part in the shrink.
TEST(NcclGroupInSimulator, F4WhatAShrinkingRankNeverEntersEndsAtItsPeers) {
  Circumstances setup;
  setup.options.keeps_for_shrink = true;
  in_many_schedules(setup, [&](Member& m) {
    if (m.on.rank() == 1) return m.on.meet();
    if (m.on.rank() == 2) {
      const Status status = m.sum();
      EXPECT_EQ(status.code(), Code::kAborted) << status.to_string();
      EXPECT_EQ(status.failure().rank, 0) << status.to_string();
      EXPECT_THAT(status.to_string(), HasSubstr("makes a smaller group"));
    }
    NcclOptions options = setup.options;
    options.name = "smaller";
    auto smaller = NcclProcessGroup::shrink(m.group, {1}, m.store, options);
    ASSERT_TRUE(smaller.has_value()) << smaller.error().to_string();
    EXPECT_STREQ((*smaller)->origin(), "ncclCommShrink");
    const Tensor ones = m.on.made(std::vector<float>(5, 1));
    EXPECT_TRUE(sim::run(**smaller, m.sum_of(ones)).ok());
    m.on.meet();
  });
}

// Whose shrink hangs gives up at its deadline, or when it hears that another one's has failed. NCCL
// hands out the child all the same: it is aborted, and so is the parent before it, once.
TEST(NcclGroupInSimulator, F4AShrinkThatIsGivenUpOrFailsLeavesNothingBehind) {
  using Fault = SimNcclFault::Kind;
  const SimNcclFault hang{Fault::kHang, kNone, "ncclCommShrink", 1, NcclResult::kSuccess};
  const SimNcclFault hang_of_0{Fault::kHang, 0, "ncclCommShrink", 1, NcclResult::kSuccess};
  const SimNcclFault error_of_2{Fault::kAsyncError, 2, "ncclCommShrink", 1,
                                NcclResult::kSystemError};
  const std::pair<std::vector<SimNcclFault>, Code> cases[] = {
      {{hang}, Code::kTimeout},
      {{hang_of_0, error_of_2}, Code::kTransport},
  };
  for (const auto& [all_faults, code] : cases) {
    Circumstances setup;
    setup.run = [&faults = all_faults](NcclRun& run) { run.options.faults = faults; };
    in_many_schedules(setup, [&, expected = code](Member& m) {
      if (m.on.rank() == 1) return m.on.meet();
      NcclOptions options = options_of(kLong);
      if (expected == Code::kTimeout) options.connect_timeout = kShort;
      options.name = "smaller";
      auto smaller = NcclProcessGroup::shrink(m.group, {1}, m.store, options);
      ASSERT_FALSE(smaller.has_value());
      EXPECT_EQ(smaller.error().code(), expected) << smaller.error().to_string();
      m.on.meet();
    });
  }
}

// Of the ranks that remain only some have a communicator that can be shrunk: rank 0 kept none. All
// of them learn that before they begin, and make a new one.
TEST(NcclGroupInSimulator, F4SurvivorsOfWhomOnlySomeCanShrinkMakeANewGroup) {
  Circumstances setup;
  setup.options = options_of(kShort);
  setup.of_rank = [](int rank, NcclOptions& options) { options.keeps_for_shrink = rank != 0; };
  in_many_schedules(setup, [&](Member& m) {
    if (m.on.rank() == 1) return m.on.meet();
    EXPECT_EQ(m.sum().code(), Code::kTimeout);
    NcclOptions options = setup.options;
    options.name = "smaller";
    auto smaller = NcclProcessGroup::shrink(m.group, {1}, m.store, options);
    ASSERT_TRUE(smaller.has_value()) << smaller.error().to_string();
    EXPECT_STREQ((*smaller)->origin(), "ncclCommInitRankConfig");
    const Tensor ones = m.on.made(std::vector<float>(5, 1));
    EXPECT_TRUE(sim::run(**smaller, m.sum_of(ones)).ok());
    EXPECT_EQ(m.on.values(ones), std::vector<float>(5, 2));
    m.on.meet();
  });
}

// The call fails on one of the ranks that remain: no rank has a smaller group, all of them name
// that rank by its number in the smaller one, and the group that they make instead works.
TEST(NcclGroupInSimulator, F4AShrinkThatFailsOnOneRankFailsOnAllAndTheNextGroupIsNew) {
  Circumstances setup;
  SimNcclFault fault;
  fault.process = 2;
  fault.function = "ncclCommShrink";
  setup.run = [&](NcclRun& run) { run.options.faults = {fault}; };
  in_many_schedules(setup, [&](Member& m) {
    if (m.on.rank() == 1) return m.on.meet();
    NcclOptions options = setup.options;
    options.name = "smaller";
    const auto smaller = NcclProcessGroup::shrink(m.group, {1}, m.store, options);
    ASSERT_FALSE(smaller.has_value());
    EXPECT_EQ(smaller.error().failure().rank, 1) << smaller.error().to_string();
    options.name = "anew";
    auto anew = NcclProcessGroup::connect(m.on.api(), m.on.device(), m.store,
                                          m.on.rank() == 0 ? 0 : 1, 2, options);
    ASSERT_TRUE(anew.has_value()) << anew.error().to_string();
    const Tensor ones = m.on.made(std::vector<float>(5, 1));
    EXPECT_TRUE(sim::run(**anew, m.sum_of(ones)).ok());
    EXPECT_EQ(m.on.values(ones), std::vector<float>(5, 2));
    m.on.meet();
  });
}

// Without a group the sends would wait for their receivers, and NCCL keeps the last error alone.
TEST(NcclGroupInSimulator, F2WhereCallsCannotBeGroupedTheErrorSaysSo) {
  for (const char* const function : {"ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd"}) {
    Circumstances setup;
    setup.run = [&](NcclRun& run) {
      run.options.faults = {
          {SimNcclFault::Kind::kResult, 0, function, 1, NcclResult::kInternalError}};
    };
    in_many_schedules(setup, [&](Member& m) {
      const Status status = m.sum([](Collective& sum) { sum.reduction = Reduction::kRankOrdered; });
      ASSERT_FALSE(status.ok());
      if (m.on.rank() != 0) return m.on.meet();
      EXPECT_EQ(status.code(), Code::kTransport);
      EXPECT_THAT(status.to_string(),
                  HasSubstr("NCCL's last error: " + std::string(function) + ": "));
      m.on.meet();
    });
  }
}

// The launch is on its way to the stream when its time is over.
TEST(NcclGroupInSimulator, F4WhatIsInProgressIsNotRevoked) {
  Circumstances setup;
  setup.options = options_of(kShort);
  setup.options.keeps_for_shrink = true;
  setup.run = [](NcclRun& run) { run.options.launch_time = 10 * kShort; };
  in_many_schedules(setup, [&](Member& m) {
    if (m.on.rank() == 1) return m.on.meet();
    EXPECT_EQ(m.sum().code(), Code::kTimeout);
    NcclOptions options = setup.options;
    options.name = "smaller";
    auto smaller = NcclProcessGroup::shrink(m.group, {1}, m.store, options);
    ASSERT_TRUE(smaller.has_value()) << smaller.error().to_string();
    EXPECT_STREQ((*smaller)->origin(), "ncclCommInitRankConfig");
    m.on.meet();
  });
}

TEST(NcclGroupInSimulator, F4ARankNamedTwiceIsOneAndWithNobodyLeftOutTheGroupIsMadeAnew) {
  for (const bool is_nobody : {false, true}) {
    Circumstances setup;
    setup.options = options_of(kShort);
    in_many_schedules(setup, [&](Member& m) {
      if (!is_nobody && m.on.rank() == 1) return m.on.meet();
      NcclOptions options = setup.options;
      options.name = "smaller";
      const std::vector<int> excluded = is_nobody ? std::vector<int>{} : std::vector<int>{1, 1};
      auto smaller = NcclProcessGroup::shrink(m.group, excluded, m.store, options);
      ASSERT_TRUE(smaller.has_value()) << smaller.error().to_string();
      EXPECT_STREQ((*smaller)->origin(), is_nobody ? "ncclCommInitRankConfig" : "ncclCommShrink");
      const Tensor ones = m.on.made(std::vector<float>(5, 1));
      EXPECT_TRUE(sim::run(**smaller, m.sum_of(ones)).ok());
      EXPECT_EQ(m.on.values(ones), std::vector<float>(5, is_nobody ? 3.0F : 2.0F));
      m.on.meet();
    });
  }
}

// With nothing in flight no thread of a group has a timer: a hang elsewhere is found at once.
TEST(NcclGroupInSimulator, AnIdleGroupLetsADeadlockBeFound) {
  const simulation::MayLeak deadlocks;
  NcclRun run(2);
  auto store = std::make_shared<HashStore>();
  platform::Mutex mutex("test");
  platform::CondVar never("test.never");
  const End end = run.run([&](SimRank& on) {
    auto group =
        NcclProcessGroup::connect(on.api(), on.device(), store, on.rank(), 2, options_of(kLong));
    ASSERT_TRUE(group.has_value());
    platform::MutexLock lock(mutex);
    never.wait(mutex, platform::Deadline::never(), [] { return false; });
  });
  EXPECT_EQ(end, End::kDeadlock);
  EXPECT_THAT(run.wait_graph, HasSubstr("test.never"));
}

}  // namespace
}  // namespace lockstep::simulated
