// The reducer over real sockets, ranks as threads: what only shows when a peer is late, gone or
// wrong, and what destruction leaves in the process. The clauses one by one, without sockets, are
// in reducer/reducer_*_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <cstring>
#include <filesystem>

#include "reducer/comm/gloo/group_test_util.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using platform::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kReducerTimeout{30000};  // a timeout that a test must not need
constexpr seconds kReducerErrorTime{15};        // what any error may take
constexpr milliseconds kDeadline{1000};         // of a collective that a peer never joins

// One rank with parameters p and q, in a group of its own connection.
struct Member {
  Status join(const std::shared_ptr<Store>& store, int rank, int size, milliseconds timeout) {
    GlooOptions options;
    options.timeout = timeout;
    GlooContextOptions connection = tested_connection();
    connection.timeout = kReducerTimeout;
    auto group = GlooProcessGroup::connect(store, rank, size, options, connection);
    if (!group) return group.error();
    membership = {std::shared_ptr<ProcessGroup>(std::move(*group)), store};
    return {};
  }
  Status create(bool dynamic, std::vector<std::uint64_t> limits = {1}) {
    ReducerOptions options = quick_options(dynamic, std::move(limits));
    options.failure_grace = seconds(2);
    return replica.create(membership, options);
  }
  std::vector<Edge> forward() { return replica.forward_of({p, q}); }
  // q is reduced; then a node throws.
  std::vector<Edge> throws_late() {
    const auto thrower = replica.thrower({{p, 0}});
    return replica.forward({{replica.fan({{q, 0}, {thrower, 0}}), 0}});
  }

  Membership membership;  // outlives the reducer
  TestRank replica;
  Ref<Parameter> p = replica.add("p");
  Ref<Parameter> q = replica.add("q");
};

// All ranks of the store are at this point: a rank that leaves may take the end of a collective
// with it that others have not quite finished.
void meet(Store& store, const std::string& place, int rank, int size) {
  ASSERT_TRUE(store.set(place + std::to_string(rank), "").has_value());
  for (int r = 0; r < size; ++r)
    ASSERT_TRUE(store.get(place + std::to_string(r), Deadline::in(kReducerTimeout)).has_value());
}

using Body = std::function<void(int, Member&)>;

// Runs body(rank, member) for members that are connected and have a reducer. All stay until the
// last one is done, so that nobody's leaving is what the others see.
void on_members(int size, bool dynamic, milliseconds timeout, const Body& body) {
  auto store = std::make_shared<HashStore>();
  std::vector<std::unique_ptr<Member>> members;
  for (int r = 0; r < size; ++r) members.push_back(std::make_unique<Member>());
  on_ranks(size, [&](int r) {
    Member& member = *members[static_cast<std::size_t>(r)];
    const Status joined = member.join(store, r, size, timeout);
    ASSERT_TRUE(joined.ok()) << joined.to_string();
    const Status created = member.create(dynamic);
    ASSERT_TRUE(created.ok()) << created.to_string();
    meet(*store, "created", r, size);
    body(r, member);
  });
}

void expect_exact_step(Member& member, int r, int ranks) {
  member.replica.undefine_grads();
  const Status status = member.replica.backward(member.forward(), {6.0 * (r + 1), 12});
  ASSERT_TRUE(status.ok()) << status.to_string();
  const double mean = 3.0 * (ranks + 1);  // of 6, 12, ...: halves and quarters, so exact
  EXPECT_EQ(values_of(member.p->grad()), (Values{mean, 12}));
  EXPECT_EQ(values_of(member.q->grad()), (Values{mean, 12}));
}

TEST(GlooReducer, G1StepsGiveTheMeanInBothModes) {
  for (const bool dynamic : {false, true}) {
    for (const int ranks : {1, 2, 4}) {
      on_members(ranks, dynamic, kReducerTimeout, [&](int r, Member& member) {
        for (int step = 0; step < 5; ++step) expect_exact_step(member, r, ranks);
      });
    }
  }
}

// Twice such a timeout is more than can be counted.
TEST(GlooReducer, F1ATimeoutOfCenturiesIsNotOver) {
  const auto centuries = std::chrono::duration_cast<milliseconds>(platform::Duration::max() / 2);
  on_members(2, false, centuries, [&](int r, Member& member) {
    for (int step = 0; step < 2; ++step) {
      if (r == 1) pause_for(milliseconds(50));  // rank 0 has to wait
      expect_exact_step(member, r, 2);
    }
  });
}

TEST(GlooReducer, P8ARankThatNeverCallsBackwardIsNamedByTheOthersAtTheDeadline) {
  for (const bool dynamic : {false, true}) {
    std::vector<Status> statuses(3);
    const auto deadline = Deadline::in(kReducerErrorTime);
    on_members(3, dynamic, kDeadline, [&](int r, Member& member) {
      const auto outputs = member.forward();
      if (r != 2) statuses[static_cast<std::size_t>(r)] = member.replica.backward(outputs, 1);
    });
    EXPECT_FALSE(deadline.passed());
    for (const int r : {0, 1}) {
      const Status& status = statuses[static_cast<std::size_t>(r)];
      ASSERT_EQ(status.code(), Code::kTimeout) << status.to_string();
      const Failure& failure = status.failure();
      EXPECT_EQ(failure.rank, 2) << status.to_string();
      EXPECT_EQ(failure.suspect, 2);
      EXPECT_EQ(failure.reported_by, r);
      EXPECT_EQ(failure.pass, 0);
      EXPECT_EQ(failure.bucket, 0);
      EXPECT_EQ(failure.parameters, std::vector<std::string>{"q"});
      EXPECT_EQ(failure.collective, "all_reduce");
      EXPECT_GE(failure.sequence, 0);
    }
  }
}

// Rank 1 raises before it has launched anything, in a node or in its module, and takes no further
// part: the others learn why when they have waited for it (pytorch#196968). What it raised in an
// earlier pass is no reason, nor is anything where it is only late.
TEST(GlooReducer, F2_15WhoWaitsForARankThatRaisedSaysWhyItDid) {
  enum class Raises { kNode, kModule, kModuleThrows, kEarlier, kNothing };
  const std::string before = "; rank 1 raised in pass 1 before it had launched anything: ";
  const std::pair<Raises, std::string> cases[] = {
      {Raises::kNode, before + "'user failure, rank 1, pass 1: a node of the backward graph threw: "
                               "the user's node threw'"},
      {Raises::kModule, before + "'user failure: a bad batch'"},
      {Raises::kModuleThrows, before + "'a %1b[1m batch'"},
      {Raises::kEarlier, ""},
      {Raises::kNothing, ""}};
  const auto module_fails = [](auto&) { return Status(Code::kUserFailure, "a bad batch"); };
  const auto module_throws = [](auto&) -> Status { throw std::runtime_error("a \x1b[1m batch"); };
  for (const auto& [raises, reason] : cases) {
    on_members(3, false, kDeadline, [&, raises = raises, reason = reason](int r, Member& member) {
      TestRank& replica = member.replica;
      const auto node_throws = [&] {
        const auto root = replica.thrower({{member.p, 0}, {member.q, 0}});
        EXPECT_EQ(replica.backward(replica.forward({{root, 0}}), 1).code(), Code::kUserFailure);
      };
      if (raises == Raises::kEarlier) node_throws();
      expect_exact_step(member, r, 3);
      if (r == 1) {
        std::vector<Edge> none;
        if (raises == Raises::kNode) node_throws();
        if (raises == Raises::kModule) {
          EXPECT_EQ(replica.parallel->forward(module_fails, none).code(), Code::kUserFailure);
        }
        if (raises == Raises::kModuleThrows) {
          EXPECT_THROW((void)replica.parallel->forward(module_throws, none), std::runtime_error);
        }
        return pause_for(2 * kDeadline + seconds(2));
      }
      const Status status = replica.backward(member.forward(), 1);
      EXPECT_EQ(status.code(), Code::kTimeout) << status.to_string();
      EXPECT_EQ(status.failure().suspect, 1) << status.to_string();
      const std::string& detail = status.failure().detail;
      EXPECT_EQ(detail.find("raised") != std::string::npos, !reason.empty()) << detail;
      EXPECT_NE(detail.find(reason), std::string::npos) << detail;
    });
  }
}

TEST(GlooReducer, F2EverySurvivorNamesTheRankThatFailedAndItsCause) {
  std::vector<Status> statuses(3);
  on_members(3, false, kReducerTimeout, [&](int r, Member& member) {
    ASSERT_TRUE(member.replica.backward(member.forward(), 1).ok());
    meet(*member.membership.store, "stepped", r, 3);
    const auto outputs = r == 1 ? member.throws_late() : member.forward();
    statuses[static_cast<std::size_t>(r)] = member.replica.backward(outputs, 1);
    EXPECT_TRUE(member.replica.forward_of({member.p}).empty());
    EXPECT_EQ(member.replica.forward_status.code(), Code::kPoisoned);
  });
  for (int r = 0; r < 3; ++r) {
    const Status& status = statuses[static_cast<std::size_t>(r)];
    ASSERT_EQ(status.code(), Code::kUserFailure) << status.to_string();
    EXPECT_EQ(status.failure().rank, 1);
    EXPECT_EQ(status.failure().reported_by, r);
    EXPECT_EQ(status.failure().pass, 1);
    EXPECT_NE(status.failure().detail.find("the user's node threw"), std::string::npos);
  }
}

TEST(GlooReducer, F4TheSurvivorsOfALostRankGoOnWithoutIt) {
  auto store = std::make_shared<HashStore>();
  on_ranks(3, [&](int r) {
    Member member;
    ASSERT_TRUE(member.join(std::make_shared<PrefixStore>("0", store), r, 3, kReducerTimeout).ok());
    ASSERT_TRUE(member.create(false).ok());
    ASSERT_TRUE(member.replica.backward(member.forward(), 1).ok());
    meet(*store, "stepped", r, 3);
    if (r == 2) {  // leaves in the middle of a pass
      const auto outputs = member.forward();
      ASSERT_TRUE(member.replica.backward({outputs[1]}, 1).ok());
      member.replica.parallel.reset();
      return;
    }
    const Status status = member.replica.backward(member.forward(), 1);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.failure().rank, 2) << status.to_string();
    ASSERT_TRUE(member.join(std::make_shared<PrefixStore>("1", store), r, 2, kReducerTimeout).ok());
    const Status reset = member.replica.parallel->reset(member.membership);
    ASSERT_TRUE(reset.ok()) << reset.to_string();
    for (int step = 0; step < 3; ++step) expect_exact_step(member, r, 2);
  });
}

TEST(GlooReducer, B4RanksWithDifferentNumbersOfParametersAllHearOfIt) {
  auto store = std::make_shared<HashStore>();
  on_ranks(3, [&](int r) {
    Member member;
    ASSERT_TRUE(member.join(store, r, 3, kReducerTimeout).ok());
    for (int k = 0; r == 1 && k < 1000; ++k) member.replica.add("more" + std::to_string(k));
    const Status status = member.create(false);
    ASSERT_EQ(status.code(), Code::kDisagreement) << status.to_string();
    EXPECT_EQ(status.failure().rank, 1);
    EXPECT_EQ(status.failure().reported_by, r);
    EXPECT_NE(status.failure().detail.find("rank 0 has nothing more"), std::string::npos);
    EXPECT_NE(status.failure().detail.find("more0"), std::string::npos);
  });
}

std::ptrdiff_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return std::distance(begin(all), end(all));
}

// What a process has that a reducer and its group could leave behind.
struct Held {
  std::ptrdiff_t threads = entries_of("/proc/self/task");
  std::ptrdiff_t descriptors = entries_of("/proc/self/fd");
  bool operator==(const Held&) const = default;
};

// Gloo's event loop takes a moment to let go of closed connections.
Held held_soon(const Held& expected) {
  const auto deadline = Deadline::in(kReducerErrorTime);
  Held now;
  while (!(now == expected) && !deadline.passed()) {
    pause_for(milliseconds(1));
    now = Held();
  }
  return now;
}

// A thread that was joined may be listed for a moment longer.
Held held_at_rest() {
  const auto deadline = Deadline::in(kReducerErrorTime);
  Held now;
  for (Held before = now;; before = now) {
    pause_for(milliseconds(100));
    now = Held();
    if (now == before || deadline.passed()) return now;
  }
}

TEST(GlooReducer, F5DestructionAtAnyPointLeavesNoThreadAndNoDescriptor) {
  const Body points[] = {
      [](int, Member&) {},
      [](int, Member& member) { (void)member.forward(); },
      // The pass is open, and rank 0's bucket waits for the other rank's.
      [](int r, Member& member) {
        const auto outputs = member.forward();
        if (r != 0) return;
        EXPECT_TRUE(member.replica.backward({outputs[1]}, 1).ok());
      },
      [](int r, Member& member) { expect_exact_step(member, r, 2); },
      [](int r, Member& member) {
        const auto outputs = r == 1 ? member.throws_late() : member.forward();
        EXPECT_FALSE(member.replica.backward(outputs, 1).ok());
      },
  };
  on_members(2, false, kReducerTimeout, points[0]);  // whatever is made once
  const Held before = held_at_rest();
  for (const Body& point : points) {
    const auto deadline = Deadline::in(kReducerErrorTime);
    on_members(2, false, kReducerTimeout, point);
    EXPECT_FALSE(deadline.passed());
    const Held after = held_soon(before);
    EXPECT_EQ(after.threads, before.threads);
    EXPECT_EQ(after.descriptors, before.descriptors);
  }
}

// Ranks 0 to 3 in pairs; `second` gives each its pair and place for what a backward sends.
std::vector<Status> in_two_pairs(const std::array<std::pair<int, int>, 4>& second) {
  const std::shared_ptr<Store> store = std::make_shared<HashStore>();
  std::vector<Status> statuses(4);
  on_ranks(4, [&](int rank) {
    const auto connect = [&](const std::string& kind, std::pair<int, int> place) {
      const auto prefix = kind + std::to_string(place.first) + "/";
      auto group = connect_rank(std::make_shared<PrefixStore>(prefix, store), place.second, 2,
                                GlooOptions());
      EXPECT_TRUE(group.has_value()) << group.error().to_string();
      return std::shared_ptr<ProcessGroup>(std::move(*group));
    };
    const std::pair<int, int> own{rank / 2, rank % 2};
    Membership two;
    two.group = connect("first ", own);
    two.store = std::make_shared<PrefixStore>("pair " + std::to_string(own.first) + "/", store);
    two.backward_group = connect("second ", second[static_cast<std::size_t>(rank)]);
    ReducerOptions options = quick_options(false);
    options.schedule = Schedule::kAfterBackward;
    TestRank replica;
    replica.add("p");
    statuses[static_cast<std::size_t>(rank)] = replica.create(two, options);
    meet(*store, "made ", rank, 4);
    replica.parallel.reset();
  });
  return statuses;
}

// Of as many ranks with the same numbers, but others: sums would be of the wrong ones.
TEST(GlooReducer, P14ASecondGroupOfOtherProcessesIsRefusedByAll) {
  for (const Status& status : in_two_pairs({{{0, 0}, {1, 1}, {1, 0}, {0, 1}}})) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_NE(status.to_string().find("not one of the same ranks"), std::string::npos);
  }
  for (const Status& status : in_two_pairs({{{0, 0}, {0, 1}, {1, 0}, {1, 1}}}))
    EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(GlooReducer, T1TracesOfAllRanksAreEqual) {
  std::vector<std::string> traces(3);
  on_members(3, true, kReducerTimeout, [&](int r, Member& member) {
    for (int step = 0; step < 3; ++step) {
      const auto used = r == step ? std::vector{member.p} : std::vector{member.p, member.q};
      ASSERT_TRUE(member.replica.backward(member.replica.forward_of(used), 1).ok());
    }
    const Reducer& reducer = member.replica.parallel->reducer();
    traces[static_cast<std::size_t>(r)] =
        reducer.trace().to_string(reducer.layout(), reducer.parameter_infos());
  });
  EXPECT_EQ(std::count(traces[0].begin(), traces[0].end(), '\n'), 9);
  EXPECT_EQ(traces[0], traces[1]);
  EXPECT_EQ(traces[0], traces[2]);
}

// Threads inherit what the application has set before it makes a group.
TEST(GlooReducerFloats, G9SumsAreThoseOfTheContractWhateverTheApplicationHasSet) {
  const auto mean = [](bool is_set) {
    std::array<Values, 3> results;
    auto store = std::make_shared<HashStore>();
    on_ranks(3, [&](int r) {
      if (is_set) {
        std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() |
                               0x8040);  // as -ffast-math does: subnormals are zeros
#endif
      }
      Member member;
      const Status joined = member.join(store, r, 3, kReducerTimeout);
      ASSERT_TRUE(joined.ok()) << joined.to_string();
      const Status created = member.create(false);
      ASSERT_TRUE(created.ok()) << created.to_string();
      Tensor gradient =
          *Tensor::empty(member.replica.devices[0], DType::kFloat32, Shape::row_major({2}));
      const std::uint32_t bits[2] = {0x3dcccccdu + static_cast<std::uint32_t>(r), 0x00000300u};
      std::memcpy(gradient.data(), bits, sizeof bits);
      const std::vector<Tensor> gradients = {gradient, gradient};
      const Status status = member.replica.engine.backward(member.forward(), gradients, false);
      ASSERT_TRUE(status.ok()) << status.to_string();
      std::uint32_t got[2];
      std::memcpy(got, member.p->grad().data(), sizeof got);
      results[static_cast<std::size_t>(r)] = {static_cast<double>(got[0]),
                                              static_cast<double>(got[1])};
      meet(*store, "done", r, 3);
    });
    EXPECT_EQ(results[1], results[0]);
    EXPECT_EQ(results[2], results[0]);
    return results[0];
  };
  const Values expected = mean(false);
  EXPECT_EQ(expected[1], static_cast<double>(0x300));  // a subnormal, thrice a third of it
  EXPECT_EQ(mean(true), expected);
}

}  // namespace
}  // namespace lockstep::testing
