// What an NcclProcessGroup promises its users, whichever NCCL is under it, as tests that each NCCL
// instantiates beside NcclConformance (test_nccl_conformance.h), with the same fixture:
//
//   INSTANTIATE_TYPED_TEST_SUITE_P(Name, NcclGroupConformance, Fixture);
//
// Where NCCLs differ (how long they take, whether they shrink), nothing is claimed.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reducer/comm/nccl/nccl_process_group.h"
#include "reducer/comm/nccl/test_nccl_conformance.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// One rank of a group of all.
class NcclGroupUnderTest {
 public:
  NcclGroupUnderTest(NcclUnderTest& on, platform::Duration timeout) : on_(on) {
    auto made = NcclProcessGroup::connect(on.api(), on.device(), on.store(), on.rank(), on.ranks(),
                                          options(on, "nccl", timeout));
    EXPECT_TRUE(made.has_value()) << made.error().to_string();
    if (made) group_ = std::move(*made);
  }
  // Times in proportion, as some clocks are virtual.
  static NcclOptions options(NcclUnderTest& on, const char* name, platform::Duration timeout) {
    const platform::Duration unit = on.short_time();
    NcclOptions options;
    options.name = name;
    options.timeout = timeout;
    options.connect_timeout = on.long_time();
    options.poll = unit / 100;
    options.notice = unit / 10;
    options.grace = unit / 5;
    options.end_timeout = 4 * unit;
    options.keeps_for_shrink = true;
    return options;
  }

  bool is_there() const { return group_ != nullptr; }
  NcclProcessGroup& group() { return *group_; }

  // What rank r adds: (r + 1) times 1, 2, 3, 4, 5, 1, 2, ...
  static std::vector<float> part_of(int rank, std::size_t count = 9) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>((rank + 1) * static_cast<int>(i % 5 + 1));
    return values;
  }
  std::vector<float> part(std::size_t count = 9) const { return part_of(on_.rank(), count); }
  static std::vector<float> total(int ranks, std::size_t count = 9) {
    return part_of(ranks * (ranks + 1) / 2 - 1, count);
  }

  Collective on_gpu(const Tensor& tensor) {
    Collective collective;
    collective.count = static_cast<std::uint64_t>(tensor.elements());
    collective.data = tensor.data();
    collective.device = &on_.device();
    collective.ready = on_.device().record(on_.stream());
    return collective;
  }
  static Collective on_host(std::vector<float>& values) {
    Collective collective;
    collective.count = values.size();
    collective.data = std::as_writable_bytes(std::span(values)).data();
    return collective;
  }
  Status done(const Collective& collective) { return run(*group_, collective); }
  Status sum() {
    const Tensor tensor = on_.made(part());
    return done(on_gpu(tensor));
  }

 private:
  NcclUnderTest& on_;
  std::unique_ptr<NcclProcessGroup> group_;
};

template <class Fixture>
class NcclGroupConformance : public ::testing::Test {
 protected:
  using Body = std::function<void(NcclUnderTest&, NcclGroupUnderTest&)>;
  // All ranks have a group, and keep it until all are done.
  static void in_group(int ranks, const Body& body) { run(ranks, false, body); }
  // Whose operations end in a timeout soon.
  static void in_hasty_group(int ranks, const Body& body) { run(ranks, true, body); }

 private:
  static void run(int ranks, bool is_hasty, const Body& body) {
    Fixture::run(ranks, [&](NcclUnderTest& on) {
      NcclGroupUnderTest group(on, is_hasty ? on.short_time() : on.long_time());
      on.meet();  // NCCL may need a rank for the others' connect() after its own has ended
      if (group.is_there()) body(on, group);
      on.meet();
    });
  }
};
TYPED_TEST_SUITE_P(NcclGroupConformance);

// Natively, in the order of the ranks, and checked; as many elements as ranks divide, and not.
TYPED_TEST_P(NcclGroupConformance, SumsAreExactInEveryWay) {
  TestFixture::in_group(3, [](NcclUnderTest& on, NcclGroupUnderTest& group) {
    for (const std::size_t count : {9u, 10u, 1u}) {
      for (const auto reduction : {Reduction::kNative, Reduction::kRankOrdered}) {
        for (const bool verify : {false, true}) {
          const Tensor tensor = on.made(group.part(count));
          Collective sum = group.on_gpu(tensor);
          sum.reduction = reduction;
          sum.verify = verify;
          const Status status = group.done(sum);
          EXPECT_TRUE(status.ok()) << status.to_string();
          EXPECT_EQ(on.values(tensor), group.total(3, count));
        }
      }
    }
  });
}

TYPED_TEST_P(NcclGroupConformance, ABroadcastComesFromItsRoot) {
  TestFixture::in_group(3, [](NcclUnderTest& on, NcclGroupUnderTest& group) {
    for (const bool verify : {false, true}) {
      for (const int root : {0, 2}) {
        const Tensor tensor = on.made(group.part());
        Collective broadcast = group.on_gpu(tensor);
        broadcast.op = Op::kBroadcast;
        broadcast.root = root;
        broadcast.verify = verify;
        const Status status = group.done(broadcast);
        EXPECT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(on.values(tensor), group.part_of(root));
      }
    }
  });
}

TYPED_TEST_P(NcclGroupConformance, GatheringGoesByRank) {
  TestFixture::in_group(3, [](NcclUnderTest& on, NcclGroupUnderTest& group) {
    std::vector<float> expected;
    for (int rank = 0; rank < 3; ++rank)
      for (const float value : group.part_of(rank, 7)) expected.push_back(value);
    for (const bool verify : {false, true}) {
      const Tensor own = on.made(group.part(7));
      const Tensor all = on.made(21);
      Collective gather = group.on_gpu(own);
      gather.op = Op::kAllGather;
      gather.gathered = all.data();
      gather.verify = verify;
      const Status status = group.done(gather);
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(on.values(all), expected);
    }
  });
}

TYPED_TEST_P(NcclGroupConformance, DataOfTheHostIsStaged) {
  TestFixture::in_group(3, [](NcclUnderTest&, NcclGroupUnderTest& group) {
    std::vector<float> own = group.part(10);
    std::vector<float> all(30);
    Collective gather = group.on_host(own);
    gather.op = Op::kAllGather;
    gather.gathered = std::as_writable_bytes(std::span(all)).data();
    EXPECT_TRUE(group.done(gather).ok());
    std::vector<float> expected;
    for (int rank = 0; rank < 3; ++rank)
      for (const float value : group.part_of(rank, 10)) expected.push_back(value);
    EXPECT_EQ(all, expected);
    EXPECT_TRUE(group.done(group.on_host(own)).ok());
    EXPECT_EQ(own, group.total(3, 10));
    own = group.part(10);
    Collective broadcast = group.on_host(own);
    broadcast.op = Op::kBroadcast;
    broadcast.root = 1;
    EXPECT_TRUE(group.done(broadcast).ok());
    EXPECT_EQ(own, group.part_of(1, 10));
  });
}

TYPED_TEST_P(NcclGroupConformance, F1ARankThatDoesNotComeEndsInATimeout) {
  TestFixture::in_hasty_group(3, [](NcclUnderTest& on, NcclGroupUnderTest& group) {
    if (on.abort_hangs()) GTEST_SKIP() << "the abort of this NCCL hangs";
    if (on.rank() == 2) return;
    const Status status = group.sum();
    EXPECT_EQ(status.code(), Code::kTimeout) << status.to_string();
    EXPECT_NE(status.to_string().find("not all ranks have entered it"), std::string::npos)
        << status.to_string();
    EXPECT_FALSE(group.sum().ok());  // and so do all after it
  });
}

// Rank 1 is inside the sum when rank 0 aborts. Rank 2 comes later, so that rank 0's sum cannot be
// complete before.
TYPED_TEST_P(NcclGroupConformance, F5AnAbortReachesThePeers) {
  TestFixture::in_group(3, [](NcclUnderTest& on, NcclGroupUnderTest& group) {
    if (on.abort_hangs()) GTEST_SKIP() << "the abort of this NCCL hangs";
    if (on.rank() == 0) {
      const Tensor tensor = on.made(group.part());
      Work work;
      EXPECT_TRUE(group.group().start(group.on_gpu(tensor), work).ok());
      group.group().abort(Status(Code::kUserFailure, "no more data"));
      EXPECT_TRUE(on.store()->set("rank 0 has aborted", "").has_value());
      EXPECT_EQ(work.wait(platform::Deadline::never()).code(), Code::kUserFailure);
      return;
    }
    if (on.rank() == 2) {
      const platform::Deadline deadline = platform::Deadline::in(on.long_time());
      EXPECT_TRUE(on.store()->get("rank 0 has aborted", deadline).has_value());
    }
    // Rank 0 may have sent its part before: then the second sum is the first one without it.
    Status status = group.sum();
    if (status.ok()) status = group.sum();
    EXPECT_EQ(status.code(), Code::kAborted) << status.to_string();
    if (!status.ok()) {
      EXPECT_EQ(status.failure().rank, 0) << status.to_string();
    }
  });
}

// One that works, and one that has failed.
TYPED_TEST_P(NcclGroupConformance, F4TheOthersGoOnInASmallerGroup) {
  for (const bool has_failed : {false, true}) {
    const auto body = [has_failed](NcclUnderTest& on, NcclGroupUnderTest& group) {
      const Status first = has_failed ? Status() : group.sum();
      EXPECT_TRUE(first.ok()) << first.to_string();
      if (on.rank() == 1) return;
      if (has_failed) {
        EXPECT_FALSE(group.sum().ok());  // as rank 1 does not come
      }
      const auto smaller = NcclProcessGroup::shrink(group.group(), {1}, on.store(),
                                                    group.options(on, "smaller", on.long_time()));
      EXPECT_TRUE(smaller.has_value()) << smaller.error().to_string();
      if (!smaller) return;
      EXPECT_EQ((*smaller)->size(), 2);
      EXPECT_EQ((*smaller)->rank(), on.rank() / 2);
      const Tensor tensor = on.made(group.part_of((*smaller)->rank()));
      const Status status = run(**smaller, group.on_gpu(tensor));
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(on.values(tensor), group.total(2));
    };
    if (has_failed)
      TestFixture::in_hasty_group(3, body);
    else
      TestFixture::in_group(3, body);
  }
}

REGISTER_TYPED_TEST_SUITE_P(NcclGroupConformance, SumsAreExactInEveryWay,
                            ABroadcastComesFromItsRoot, GatheringGoesByRank, DataOfTheHostIsStaged,
                            F1ARankThatDoesNotComeEndsInATimeout, F5AnAbortReachesThePeers,
                            F4TheOthersGoOnInASmallerGroup);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
