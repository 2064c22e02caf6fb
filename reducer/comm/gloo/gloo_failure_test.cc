// What a GlooProcessGroup does when something goes wrong, with ranks as threads. Ranks as
// processes, killed and stopped, are in gloo_process_test.cc.
//
// Upper bounds on time are generous: they tell an error by the deadline from one that waits for
// something else (Gloo's 30 s, or no end), not how fast an error comes.
#include <arpa/inet.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/address.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>

#include "reducer/comm/gloo/device.h"
#include "reducer/comm/gloo/forwarding_transport.h"
#include "reducer/comm/gloo/gloo_errors.h"
#include "reducer/comm/gloo/group_test_util.h"
#include "reducer/comm/gloo/slots.h"
#include "reducer/comm/gloo/test_refused_threads.h"
#include "reducer/comm/gloo/watched_transport.h"

namespace lockstep {
namespace {

using namespace lockstep::testing;  // NOLINT
using platform::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLong{30};      // a timeout that a test must not need
constexpr seconds kGenerous{15};  // what any error may take

// The status of one collective per rank, all started at once; ranks for which `make` gives no
// collective stay away until the others are done.
std::vector<Status> run_on_all(Groups& groups, const std::function<bool(int, Collective&)>& make) {
  std::vector<Status> statuses(groups.size());
  std::vector<Elements> data;
  for (std::size_t i = 0; i < groups.size(); ++i)
    data.push_back(part(DType::kFloat64, static_cast<int>(i), 4000));
  on_groups(groups, [&](int rank, GlooProcessGroup& group) {
    const auto index = static_cast<std::size_t>(rank);
    Elements gathered(DType::kFloat64, 4000 * groups.size());
    Collective collective = sum_of(data[index]);
    collective.dtype = DType::kFloat32;  // a rank may enter a wider one
    collective.gathered = gathered.data();
    collective.count = 100;
    if (make(rank, collective)) statuses[index] = run(group, collective);
  });
  return statuses;
}

void expect_dead(Groups& groups) {
  for (Group& group : groups) {
    EXPECT_FALSE(group->context()->health().ok());
    Elements elements = part(DType::kFloat32, 0, 5);
    Work work;
    EXPECT_FALSE(group->start(sum_of(elements), work).ok());
    EXPECT_TRUE(work.done());
    EXPECT_FALSE(GlooProcessGroup::create(group->context(), {}).has_value());
  }
}

// What an idle rank hears, a moment later.
Status wait_until_ill(GlooProcessGroup& group) {
  const auto deadline = Deadline::in(kGenerous);
  while (group.context()->health().ok() && !deadline.passed()) pause_for(milliseconds(1));
  return group.context()->health();
}

// Connecting takes its time where threads are many and processors few.
GlooContextOptions patient() {
  GlooContextOptions connection = tested_connection();
  connection.timeout = kLong;
  return connection;
}

struct Difference {
  const char* name;
  std::function<void(Collective&)> change;
};

const Difference kDifferences[] = {
    {"Count", [](Collective& c) { c.count = 2000; }},
    {"CountZero", [](Collective& c) { c.count = 0; }},
    {"Dtype", [](Collective& c) { c.dtype = DType::kFloat16; }},
    {"DtypeOfSameSize", [](Collective& c) { c.dtype = DType::kInt32; }},
    {"Gather", [](Collective& c) { c.op = Op::kAllGather; }},
    {"Broadcast", [](Collective& c) { c.op = Op::kBroadcast; }},
    {"Pass", [](Collective& c) { c.pass = 7; }},
    {"Bucket", [](Collective& c) { c.bucket = 9; }},
};

using MismatchCase = std::tuple<Difference, int, int>;  // which rank differs, of how many
class Mismatch : public ::testing::TestWithParam<MismatchCase> {};

TEST_P(Mismatch, IsReportedWithBothSidesOnEveryRank) {
  const Difference& difference = std::get<0>(GetParam());
  const int odd = std::get<1>(GetParam());
  const int size = std::get<2>(GetParam());
  for (const Op op : {Op::kAllReduceSum, Op::kBroadcast, Op::kAllGather}) {
    Groups groups = connect_threads(size, with_timeout(kLong));
    const auto statuses = run_on_all(groups, [&](int rank, Collective& collective) {
      collective.op = op;
      collective.pass = 3;
      collective.bucket = 4;
      if (rank == odd) difference.change(collective);
      return true;
    });
    if (std::string(difference.name) == name_of(op)) continue;
    const bool is_same = (op == Op::kAllGather && std::string(difference.name) == "Gather") ||
                         (op == Op::kBroadcast && std::string(difference.name) == "Broadcast");
    if (is_same) continue;
    for (const Status& status : statuses) {
      ASSERT_EQ(status.code(), Code::kMismatch) << status.to_string();
      const Failure& failure = status.failure();
      EXPECT_TRUE(failure.definite);
      EXPECT_NE(failure.detail.find("rank " + std::to_string(odd) + " entered"), std::string::npos)
          << failure.detail;
      EXPECT_EQ(failure.sequence, 0);
      EXPECT_FALSE(failure.collective.empty());
    }
    expect_dead(groups);
  }
}

INSTANTIATE_TEST_SUITE_P(Gloo, Mismatch,
                         ::testing::Combine(::testing::ValuesIn(kDifferences), ::testing::Values(1),
                                            ::testing::Values(2, 3, 4)),
                         [](const auto& parameter) {
                           return std::string(std::get<0>(parameter.param).name) + "On" +
                                  std::to_string(std::get<2>(parameter.param));
                         });

TEST(GlooMismatch, FactorsMustAgree) {
  Groups groups = connect_threads(3, with_timeout(kLong));
  const auto statuses = run_on_all(groups, [](int rank, Collective& collective) {
    collective.factor = rank == 2 ? 0.25 : 0.5;
    return true;
  });
  for (const Status& status : statuses) {
    ASSERT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.to_string().find("times 0.25"), std::string::npos) << status.to_string();
  }
}

TEST(GlooMismatch, RootsOfABroadcastMustAgree) {
  Groups groups = connect_threads(3, with_timeout(kLong));
  const auto statuses = run_on_all(groups, [](int rank, Collective& collective) {
    collective.op = Op::kBroadcast;
    collective.root = rank == 2 ? 1 : 0;
    return true;
  });
  for (const Status& status : statuses) {
    ASSERT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.failure().detail.find("from root 1"), std::string::npos);
  }
}

TEST(GlooMismatch, TextTellsBothSides) {
  Groups groups = connect_threads(2, with_timeout(kLong));
  const auto statuses = run_on_all(groups, [](int rank, Collective& collective) {
    collective.count = rank == 0 ? 8 : 4;
    collective.bucket = 3;
    collective.pass = 1;
    return true;
  });
  const std::string& detail = statuses[0].failure().detail;
  EXPECT_NE(detail.find("rank 0 entered all_reduce of 8 float32 (bucket 3, pass 1, sequence 0"),
            std::string::npos)
      << detail;
  EXPECT_NE(detail.find("rank 1 entered all_reduce of 4 float32 (bucket 3, pass 1, sequence 0"),
            std::string::npos)
      << detail;
  EXPECT_EQ(statuses[0].failure().bucket, 3);
  EXPECT_EQ(statuses[0].failure().pass, 1);
}

// Neighbours that agree are not enough: two halves of a large group run different collectives.
TEST(GlooMismatch, HalvesOfALargeGroupAreToldApart) {
  for (const auto algorithm : {GlooOptions::Algorithm::kRing, GlooOptions::Algorithm::kBcube}) {
    GlooOptions options = with_timeout(kLong);
    options.algorithm = algorithm;
    Groups groups = connect_threads(12, options);
    const auto statuses = run_on_all(groups, [](int rank, Collective& collective) {
      collective.count = rank < 6 ? 2000 : 100;
      return true;
    });
    for (const Status& status : statuses)
      EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
  }
}

TEST(GlooMismatch, SegmentsAndEpochsMustAgree) {
  for (const bool is_epoch : {true, false}) {
    auto store = std::make_shared<HashStore>();
    Groups groups(2);
    on_ranks(2, [&](int rank) {
      GlooOptions options = with_timeout(kLong);
      if (rank == 1 && is_epoch) options.epoch = 5;
      if (rank == 1 && !is_epoch) options.max_segment_bytes = 128;
      groups[static_cast<std::size_t>(rank)] = connect_rank(store, rank, 2, options).value();
    });
    for (const Status& status : run_on_all(groups, [](int, Collective&) { return true; }))
      EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
  }
}

// From 9 ranks on the neighbours are asked first, and in a ring nobody else.
TEST(GlooFailure, RankThatDoesNotComeIsNamedByAll) {
  for (const auto& [size, op] : {std::pair{2, Op::kAllReduceSum},
                                 {3, Op::kAllReduceSum},
                                 {4, Op::kAllReduceSum},
                                 {9, Op::kAllReduceSum},
                                 {9, Op::kBroadcast},
                                 {12, Op::kAllGather},
                                 {33, Op::kAllReduceSum},
                                 {33, Op::kBroadcast}}) {
    SCOPED_TRACE(std::to_string(size) + " ranks, " + name_of(op));
    const int absent = size - 1;
    Groups groups = connect_threads(size, with_timeout(milliseconds(500)), patient());
    const auto begin = platform::now();
    const auto statuses = run_on_all(groups, [&, op = op](int rank, Collective& collective) {
      collective.op = op;
      collective.pass = 2;
      collective.bucket = 6;
      return rank != absent;
    });
    EXPECT_LT(platform::now() - begin, kGenerous);
    const std::string named = "not entered by rank " + std::to_string(absent);
    for (int rank = 0; rank < absent; ++rank) {
      const Status& status = statuses[static_cast<std::size_t>(rank)];
      ASSERT_EQ(status.code(), Code::kTimeout) << status.to_string();
      EXPECT_EQ(status.failure().suspect, absent) << status.to_string();
      EXPECT_TRUE(status.failure().detail.ends_with(named)) << status.to_string();
      EXPECT_EQ(status.failure().reported_by, rank);
      EXPECT_EQ(status.failure().collective, name_of(op));
      EXPECT_EQ(status.failure().pass, 2);
      EXPECT_EQ(status.failure().bucket, 6);
      EXPECT_FALSE(status.failure().definite);
    }
    EXPECT_EQ(wait_until_ill(*groups.back()).code(), Code::kTimeout);  // it was told
    expect_dead(groups);
  }
}

// Two ranks whose second one sends each segment of an all-reduce late.
Groups two_with_late_segments(milliseconds timeout, const GlooOptions& wanted,
                              const std::function<milliseconds(int)>& lateness) {
  auto store = std::make_shared<HashStore>();
  Groups groups(2);
  const auto count = std::make_shared<std::atomic<int>>(0);
  on_ranks(2, [&](int rank) {
    // Only rank 0 keeps the deadline, so that it is rank 0 which shows.
    GlooOptions options = wanted;
    options.timeout = rank == 0 ? timeout : milliseconds(60'000);
    GlooContextOptions connection = patient();
    if (rank == 1)
      connection.device = std::make_shared<ForwardingDevice>(
          shared_device("127.0.0.1").value(), [count, lateness](const ForwardedSend& send) {
            if (send.part_of == ForwardedSend::kAllReduce) pause_for(lateness((*count)++));
          });
    groups[static_cast<std::size_t>(rank)] =
        GlooProcessGroup::connect(store, rank, 2, options, connection).value();
  });
  return groups;
}

// F1: the deadline is one of progress. 60 segments, each late, take three times the timeout.
TEST(GlooFailure, F1_2AnOperationThatMakesProgressOutlivesTheTimeout) {
  GlooOptions options;
  options.max_segment_bytes = 64;
  Groups groups =
      two_with_late_segments(milliseconds(1000), options, [](int) { return milliseconds(50); });
  const auto begin = platform::now();
  const auto statuses = run_on_all(groups, [](int, Collective& collective) {
    collective.count = 960;  // 60 segments
    return true;
  });
  EXPECT_GT(platform::now() - begin, milliseconds(1000));  // or the test shows nothing
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(GlooFailure, F1_4AnOperationWithoutProgressFailsInTime) {
  GlooOptions options;
  options.max_segment_bytes = 64;
  Groups groups = two_with_late_segments(milliseconds(500), options, [](int segment) {
    return milliseconds(segment == 20 ? 3000 : 0);
  });
  const auto statuses = run_on_all(groups, [](int, Collective& collective) {
    collective.count = 960;
    return true;
  });
  ASSERT_EQ(statuses[0].code(), Code::kTimeout) << statuses[0].to_string();
  EXPECT_EQ(statuses[0].failure().suspect, 1);
  EXPECT_NE(statuses[0].failure().detail.find("no progress within 500 ms"), std::string::npos);
  EXPECT_EQ(statuses[1].code(), Code::kTimeout) << statuses[1].to_string();  // as it was told
  EXPECT_EQ(statuses[1].failure().rank, 0);
}

// Makes all connections of this process as slow as that.
void pace_connections(std::uint32_t bytes_per_second) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    ::setsockopt(descriptor, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_second,
                 sizeof bytes_per_second);
  }
}

// F1: the bytes of one long message count as progress while they move. Each of the two messages of
// a ring of two takes longer than the timeout.
TEST(GlooFailure, F1ALongMessageOverASlowLinkOutlivesTheTimeout) {
  constexpr milliseconds kTimeout{1000};
  constexpr std::size_t kMany = 800'000;  // floats; half of them are in each message
  GlooOptions options = with_timeout(kTimeout);
  options.max_segment_bytes = std::size_t{64} << 20;
  GlooContextOptions connection = patient();
  connection.share_memory = false;
  Groups groups = connect_threads(2, options, connection);
  pace_connections(1'000'000);
  const auto begin = platform::now();
  on_groups(groups, [](int rank, GlooProcessGroup& group) {
    Elements data = part(DType::kFloat32, rank, kMany);
    const Status status = run(group, sum_of(data));
    EXPECT_TRUE(status.ok()) << status.to_string();
    expect_total(data, 2);
  });
  EXPECT_GT(platform::now() - begin, 2 * kTimeout);  // or the test shows nothing
}

// F1: what waits behind others has no deadline of its own.
TEST(GlooFailure, F1_3AQueueOfOperationsOutlivesTheTimeout) {
  GlooOptions options;
  options.workers = 1;
  Groups groups =
      two_with_late_segments(milliseconds(1000), options, [](int) { return milliseconds(50); });
  const auto begin = platform::now();
  on_groups(groups, [](int rank, GlooProcessGroup& group) {
    constexpr std::size_t kMany = 20;  // of two late segments each, at the least
    std::vector<Work> works(kMany);
    std::vector<Elements> data;
    for (std::size_t i = 0; i < kMany; ++i) data.push_back(part(DType::kFloat32, rank, 100));
    for (std::size_t i = 0; i < kMany; ++i)
      ASSERT_TRUE(group.start(sum_of(data[i]), works[i]).ok());
    for (Work& work : works) {
      const Status status = wait_behind(work, {&group});
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    for (Elements& elements : data) expect_total(elements, 2);
  });
  EXPECT_GT(platform::now() - begin, milliseconds(1000));
}

TEST(GlooFailure, QueuedOperationsAllEndWithTheFirstCause) {
  Groups groups = connect_threads(2, with_timeout(milliseconds(500)));
  std::vector<Work> works(30);
  std::vector<Elements> data;
  for (std::size_t i = 0; i < works.size(); ++i) data.push_back(part(DType::kInt32, 0, 10));
  for (std::size_t i = 0; i < works.size(); ++i)
    ASSERT_TRUE(groups[0]->start(sum_of(data[i]), works[i]).ok());
  for (Work& work : works) {
    const Status status = work.wait(Deadline::in(kGenerous));
    ASSERT_EQ(status.code(), Code::kTimeout);
    EXPECT_EQ(status.failure().sequence, 0);  // the operation that was overdue
  }
}

TEST(GlooFailure, AbortWakesWaitersHereAndThere) {
  Groups groups = connect_threads(4, with_timeout(kLong));
  const auto begin = platform::now();
  Failure cause;
  cause.code = Code::kUserFailure;
  cause.detail = "a hook threw";
  cause.pass = 11;
  cause.parameters = {"layer.weight"};
  std::vector<Status> statuses(4);
  on_groups(groups, [&](int rank, GlooProcessGroup& group) {
    if (rank == 3) {
      pause_for(milliseconds(50));
      group.abort(Status(cause));
      group.abort(Status(Code::kInternal, "the second cause does not replace the first"));
      return;
    }
    statuses[static_cast<std::size_t>(rank)] = sum_once(group);
  });
  EXPECT_LT(platform::now() - begin, kGenerous);
  for (int rank = 0; rank < 3; ++rank) {
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    ASSERT_EQ(status.code(), Code::kAborted) << status.to_string();
    EXPECT_EQ(status.failure().rank, 3);
    EXPECT_EQ(status.failure().suspect, 3);
    EXPECT_EQ(status.failure().reported_by, rank);
    EXPECT_EQ(status.failure().pass, 11);
    EXPECT_NE(status.failure().detail.find("a hook threw"), std::string::npos);
    EXPECT_EQ(status.failure().parameters, cause.parameters);
  }
  EXPECT_EQ(groups[3]->context()->health().code(), Code::kUserFailure);
  EXPECT_EQ(groups[3]->health().code(), Code::kUserFailure);
  EXPECT_EQ(groups[0]->health().code(), Code::kAborted);
  expect_dead(groups);
}

TEST(GlooFailure, AbortEndsWorkInFlightWithItsCause) {
  Groups groups = connect_threads(2, with_timeout(kLong));
  Elements elements = part(DType::kFloat32, 0, 1000);
  Work work;
  ASSERT_TRUE(groups[0]->start(sum_of(elements), work).ok());
  EXPECT_EQ(work.wait(Deadline::in(milliseconds(30))).code(), Code::kTimeout);
  EXPECT_FALSE(work.done());
  groups[0]->abort(Status(Code::kPoisoned, "why"));
  const Status status = work.wait(Deadline::in(kGenerous));
  EXPECT_EQ(status.code(), Code::kPoisoned);
  EXPECT_EQ(status.failure().collective, "all_reduce");  // the first operation that it concerns
  EXPECT_EQ(status.failure().sequence, 0);
  EXPECT_NE(status.to_string().find("why"), std::string::npos);
  // F2: so is what is refused from then on.
  const Status refused = groups[0]->start(sum_of(elements), work);
  ASSERT_EQ(refused.code(), Code::kPoisoned) << refused.to_string();
  EXPECT_EQ(refused.failure().collective, "all_reduce");
  EXPECT_EQ(refused.failure().sequence, 1);
}

TEST(GlooFailure, LongCausesAreShortenedForThePeers) {
  Groups groups = connect_threads(2, with_timeout(kLong));
  Failure cause;
  cause.code = Code::kIncomplete;
  cause.detail = std::string(5000, 'd');
  cause.parameters.assign(500, "a parameter with quite a long name");
  cause.bucket = 12;
  std::vector<Status> statuses(2);
  on_groups(groups, [&](int rank, GlooProcessGroup& group) {
    if (rank == 1) return group.abort(Status(cause));
    statuses[0] = sum_once(group);
  });
  ASSERT_EQ(statuses[0].code(), Code::kAborted) << statuses[0].to_string();
  EXPECT_EQ(statuses[0].failure().bucket, 12);
}

TEST(GlooFailure, CausesAreShortenedWhateverIsLongInThem) {
  for (const int which : {0, 1, 2}) {
    Groups groups = connect_threads(2, with_timeout(kLong));
    Failure cause;
    cause.code = Code::kUserFailure;
    cause.detail = which == 0 ? std::string(5000, 'd') : "on purpose";
    if (which == 1) cause.collective = std::string(3000, 'c');
    if (which == 2) cause.parameters = {std::string(1 << 20, 'n')};
    std::vector<Status> statuses(2);
    on_groups(groups, [&](int rank, GlooProcessGroup& group) {
      if (rank == 1) return group.abort(Status(cause));
      statuses[0] = sum_once(group);
    });
    ASSERT_EQ(statuses[0].code(), Code::kAborted) << statuses[0].to_string();
    const char* kept = which == 0 ? "ddd" : "on purpose";
    EXPECT_NE(statuses[0].to_string().find(kept), std::string::npos) << statuses[0].to_string();
  }
}

TEST(GlooFailure, DestructionWithWorkInFlightIsBoundedAndSeen) {
  Groups groups = connect_threads(3, with_timeout(kLong));
  const auto begin = platform::now();
  Elements elements = part(DType::kFloat32, 0, 300'000);
  Work work;
  ASSERT_TRUE(groups[0]->start(sum_of(elements), work).ok());
  groups[0].reset();
  ASSERT_TRUE(work.done());
  EXPECT_EQ(work.wait(Deadline::never()).code(), Code::kAborted);
  for (std::size_t rank : {1u, 2u}) {
    const Status status = sum_once(*groups[rank], 300'000);
    EXPECT_EQ(status.code(), Code::kAborted) << status.to_string();
    EXPECT_EQ(status.failure().suspect, 0);
  }
  EXPECT_LT(platform::now() - begin, kGenerous);
}

TEST(GlooFailure, RankThatLeftInPeaceIsNamed) {
  Groups groups = connect_threads(3, with_timeout(kLong));
  on_groups(groups, [](int, GlooProcessGroup& group) { ASSERT_TRUE(sum_once(group).ok()); });
  groups[1].reset();
  const auto begin = platform::now();
  std::vector<Status> statuses(3);
  on_ranks(3, [&](int rank) {
    if (rank != 1)
      statuses[static_cast<std::size_t>(rank)] = sum_once(*groups[static_cast<std::size_t>(rank)]);
  });
  for (std::size_t rank : {0u, 2u}) {
    ASSERT_EQ(statuses[rank].code(), Code::kPeerLost) << statuses[rank].to_string();
    EXPECT_EQ(statuses[rank].failure().suspect, 1);
    EXPECT_NE(statuses[rank].failure().detail.find("left"), std::string::npos);
  }
  EXPECT_LT(platform::now() - begin, kGenerous);
}

// Ranks finish the last operation at different times; who is first and goes must not spoil it for
// others.
TEST(GlooFailure, LeavingAfterTheLastOperationSpoilsItForNobody) {
  for (int round = 0; round < 25; ++round) {
    Groups groups = connect_threads(4, with_timeout(kLong));
    on_ranks(4, [&](int rank) {
      Group& group = groups[static_cast<std::size_t>(rank)];
      for (int i = 0; i < 3; ++i) {
        const Status status = sum_once(*group, static_cast<std::size_t>(1 + 3000 * (round % 5)));
        EXPECT_TRUE(status.ok()) << status.to_string();
      }
      group.reset();
    });
  }
}

// It has one notice to send from. A peer's failure that it hears while it leaves must not be
// written over what is on its way there.
TEST(GlooFailure, ARankThatLeavesSendsOneNoticeAtATime) {
  auto store = std::make_shared<HashStore>();
  Groups groups(3);
  std::atomic<int> sending{0};
  std::atomic<int> most{0};
  const auto before_send = [&](const ForwardedSend& send) {
    if (send.part_of != static_cast<std::uint8_t>(Channel::kNotice)) return;
    const int now = ++sending;
    if (now > most) most = now;
    if (now == 1 && groups[0]->context()->health().ok()) {
      groups[0]->abort(Status(Code::kUserFailure, "given up"));
      // For rank 1 to hear it, too, if it still listens.
      const auto deadline = Deadline::in(milliseconds(200));
      while (most == 1 && !deadline.passed()) pause_for(milliseconds(1));
    }
    --sending;
  };
  on_ranks(3, [&](int rank) {
    GlooContextOptions connection = tested_connection();
    if (rank == 1)
      connection.device =
          std::make_shared<ForwardingDevice>(shared_device("127.0.0.1").value(), before_send);
    groups[static_cast<std::size_t>(rank)] =
        GlooProcessGroup::connect(store, rank, 3, with_timeout(kLong), connection).value();
  });
  groups[1].reset();
  EXPECT_EQ(most, 1);
  const Status heard = wait_until_ill(*groups[2]);
  EXPECT_EQ(heard.code(), Code::kAborted) << heard.to_string();
  EXPECT_EQ(heard.failure().suspect, 0);
}

TEST(GlooFailure, NewGroupAfterAFailureIsExact) {
  for (int round = 0; round < 10; ++round) {
    Groups groups = connect_threads(3, with_timeout(milliseconds(2000)));
    on_groups(groups, [](int, GlooProcessGroup& group) { ASSERT_TRUE(sum_once(group).ok()); });
    const auto statuses = run_on_all(groups, [round](int rank, Collective& collective) {
      collective.count = rank == round % 3 ? 4000 : 2000;
      return true;
    });
    for (const Status& status : statuses) EXPECT_FALSE(status.ok());
    groups.clear();
    Groups fresh = connect_threads(3, with_timeout(kLong));
    on_groups(fresh, [](int, GlooProcessGroup& group) {
      for (int i = 0; i < 5; ++i) ASSERT_TRUE(sum_once(group, 5000).ok());
    });
  }
}

int entries_of(const char* directory) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    (void)entry;
    ++count;
  }
  return count;
}

// Whatever happened to the groups.
TEST(GlooFailure, NoThreadAndNoDescriptorIsLeftBehind) {
  platform::Thread("first", [] {}).join();  // with it ThreadSanitizer starts one of its own
  const int threads = entries_of("/proc/self/task");
  const int descriptors = entries_of("/proc/self/fd");
  for (int round = 0; round < 4; ++round) {
    Groups groups = connect_threads(3, with_timeout(milliseconds(300)));
    EXPECT_GT(entries_of("/proc/self/task"), threads);
    EXPECT_GT(entries_of("/proc/self/fd"), descriptors);
    run_on_all(groups, [round](int rank, Collective& collective) {
      collective.count = rank == 0 && round == 1 ? 7 : 10;  // a mismatch
      return rank != 1 || round != 2;                       // a rank that does not come
    });
    if (round == 3) groups[2]->abort(Status(Code::kAborted, "now"));
  }
  const auto missing =
      connect_rank(std::make_shared<HashStore>(), 0, 2, with_timeout(milliseconds(20)));
  EXPECT_FALSE(missing.has_value());
  const auto deadline = Deadline::in(kGenerous);  // a thread that was joined is listed for a moment
  while (entries_of("/proc/self/task") != threads && !deadline.passed()) pause_for(milliseconds(1));
  EXPECT_EQ(entries_of("/proc/self/task"), threads);
  EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
}

// While operations run on all ranks one of them aborts at a moment of chance. A rank that closes a
// connection with unread data resets it, and a peer that writes just then learns of the reset
// before it has read the cause. So peers know the cause most of the time, and otherwise a rank that
// they have lost: the one that aborts, or the third one, which has ended for the same cause.
TEST(GlooFailure, AbortAtAnyMomentEndsEveryOperation) {
  constexpr int kRounds = 30;
  std::atomic<int> know_the_cause{0};
  for (int round = 0; round < kRounds; ++round) {
    const int aborts = round % 3;
    Groups groups = connect_threads(3, with_timeout(kLong));
    on_groups(groups, [&](int rank, GlooProcessGroup& group) {
      std::thread aborter;
      if (rank == aborts)
        aborter = std::thread([&group, round] {
          std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
          group.abort(Status(Code::kUserFailure, "now"));
        });
      Status status;
      for (int i = 0; i < 100'000 && status.ok(); ++i)
        status = sum_once(group, i % 3 == 0 ? 100'000 : 10);
      if (aborter.joinable()) aborter.join();
      if (rank == aborts) {
        EXPECT_EQ(status.code(), Code::kUserFailure) << status.to_string();
      } else if (status.code() == Code::kPeerLost) {
        EXPECT_NE(status.failure().suspect, kNone) << status.to_string();
        EXPECT_NE(status.failure().suspect, rank) << status.to_string();
      } else {
        EXPECT_EQ(status.code(), Code::kAborted) << status.to_string();
        ++know_the_cause;
      }
    });
  }
  EXPECT_GE(know_the_cause, 9 * 2 * kRounds / 10);
}

TEST(GlooConnect, MissingRanksAreNamedWithinTheDeadline) {
  auto store = std::make_shared<HashStore>();
  const auto begin = platform::now();
  on_ranks(5, [&](int rank) {
    if (rank == 1 || rank == 4) return;
    const auto group = connect_rank(store, rank, 5, with_timeout(milliseconds(500)));
    ASSERT_FALSE(group.has_value());
    EXPECT_EQ(group.error().code(), Code::kTimeout);
    EXPECT_EQ(group.error().failure().suspect, 1);
    EXPECT_NE(group.error().to_string().find("ranks 1, 4 did not appear"), std::string::npos)
        << group.error().to_string();
  });
  EXPECT_GE(platform::now() - begin, milliseconds(500));
  EXPECT_LT(platform::now() - begin, kGenerous);
}

TEST(GlooConnect, RankThatStopsAfterItAppearedIsNamed) {
  auto store = std::make_shared<HashStore>();
  store->set("here/1", "2").value();
  const auto group = connect_rank(store, 0, 2, with_timeout(milliseconds(300)));
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().code(), Code::kTimeout);
  EXPECT_EQ(group.error().failure().suspect, 1);
  EXPECT_NE(group.error().to_string().find("gave no address"), std::string::npos);
}

TEST(GlooConnect, DifferentSizesAreAMismatch) {
  auto store = std::make_shared<HashStore>();
  on_ranks(2, [&](int rank) {
    const auto group = connect_rank(store, rank, 2 + rank, with_timeout(milliseconds(2000)));
    ASSERT_FALSE(group.has_value());
    EXPECT_EQ(group.error().code(), Code::kMismatch) << group.error().to_string();
  });
}

TEST(GlooConnect, StoreThatWasUsedBeforeIsRefused) {
  auto store = std::make_shared<HashStore>();
  for (const char* prefix : {"1", "2"}) {  // each connection under its own prefix is fine
    // A group that is gone before the other rank has connected would fail that rank.
    std::array<std::unique_ptr<GlooProcessGroup>, 2> groups;
    on_ranks(2, [&](int rank) {
      auto own = std::make_shared<PrefixStore>(prefix, store);
      auto group = connect_rank(own, rank, 2, {});
      ASSERT_TRUE(group.has_value()) << group.error().to_string();
      groups[static_cast<std::size_t>(rank)] = std::move(*group);
    });
  }
  const auto again = connect_rank(std::make_shared<PrefixStore>("1", store), 0, 2, {});
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code(), Code::kInvalidArgument);
}

TEST(GlooConnect, AddressThatIsNotOursIsRefused) {
  GlooContextOptions connection = tested_connection();
  connection.address = "203.0.113.7";
  const auto context = GlooContext::connect(std::make_shared<HashStore>(), 0, 2, connection);
  ASSERT_FALSE(context.has_value());
  EXPECT_EQ(context.error().code(), Code::kInvalidArgument);
  EXPECT_NE(context.error().to_string().find("203.0.113.7"), std::string::npos);
}

TEST(GlooConnect, RankOutsideTheGroupIsRefused) {
  for (const int rank : {-1, 2})
    EXPECT_EQ(connect_rank(std::make_shared<HashStore>(), rank, 2, {}).error().code(),
              Code::kInvalidArgument);
}

// The rank that needs a thread first has no other error; its peer may lose it before it needs one.
TEST(GlooConnect, ARefusedThreadIsToldAsOne) {
  const auto device = shared_device("127.0.0.1").value();  // Its thread runs already.
  GlooContextOptions connection = patient();
  connection.device = device;
  std::array<std::string, 2> errors;
  std::optional<RefusedThreads> refused;
  std::once_flag once;
  const auto store = std::make_shared<HashStore>();
  on_ranks(2, [&](int rank) {
    ASSERT_TRUE(store->set("runs/" + std::to_string(rank), "").has_value());
    ASSERT_TRUE(store->get("runs/" + std::to_string(1 - rank), Deadline::in(kLong)).has_value());
    std::call_once(once, [&] { refused.emplace(); });
    const auto context = GlooContext::connect(store, rank, 2, connection);
    ASSERT_FALSE(context.has_value());
    errors[static_cast<std::size_t>(rank)] = context.error().to_string();
  });
  refused.reset();
  const auto names_thread = [](const std::string& text) {
    return text.find("refused a thread for the monitor") != std::string::npos;
  };
  EXPECT_TRUE(names_thread(errors[0]) || names_thread(errors[1])) << errors[0] << "; " << errors[1];
}

TEST(GlooConnect, WhatTheStoreHoldsIsNotBelievedBlindly) {
  auto store = std::make_shared<HashStore>();
  ASSERT_TRUE(store->set("here/1", "99999999999999999999").has_value());
  const auto of_size = GlooContext::connect(store, 0, 2, patient());
  ASSERT_FALSE(of_size.has_value());
  EXPECT_EQ(of_size.error().code(), Code::kMismatch);
  EXPECT_EQ(of_size.error().to_string().find("9999"), std::string::npos);

  store = std::make_shared<HashStore>();
  ASSERT_TRUE(store->set("here/1", "2").has_value());
  std::string addresses;
  for (const std::uint32_t length : {40u, 0u}) {
    addresses.append(reinterpret_cast<const char*>(&length), sizeof length);
    addresses.append(length, '\x7f');
  }
  ASSERT_TRUE(store->set("address/1", addresses).has_value());
  const auto of_address = GlooContext::connect(store, 0, 2, patient());
  ASSERT_FALSE(of_address.has_value());
  EXPECT_EQ(of_address.error().code(), Code::kMismatch);
  EXPECT_EQ(of_address.error().failure().suspect, 1);
  EXPECT_NE(of_address.error().to_string().find("40 bytes"), std::string::npos)
      << of_address.error().to_string();
}

// Gloo tells ports in the order of the network: 7 is 1792 there, where the two orders differ.
std::string as_gloo_tells(const char* before, std::uint16_t port, const char* after) {
  sockaddr_storage storage{};
  reinterpret_cast<sockaddr_in&>(storage).sin_family = AF_INET;
  reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  return before + ::gloo::transport::tcp::Address(storage).str() + after;
}

TEST(GlooErrors, TextsAreUnderstood) {
  const std::string lost =
      as_gloo_tells("[/build/gloo/transport/tcp/pair.cc:598] Connection closed by peer ", 7, "");
  EXPECT_EQ(code_of_gloo_error(lost), Code::kPeerLost);
  EXPECT_EQ(readable_gloo_error(lost), "Connection closed by peer [0.0.0.0]:7");
  const std::string reset =
      as_gloo_tells("[x.cc:1] Read error ", 57763, ": Connection reset by peer");
  EXPECT_EQ(code_of_gloo_error(reset), Code::kPeerLost);
  EXPECT_EQ(readable_gloo_error(reset), "Read error [0.0.0.0]:57763: Connection reset by peer");
  EXPECT_EQ(code_of_gloo_error("Timed out waiting 5ms for recv operation to complete"),
            Code::kTimeout);
  EXPECT_EQ(code_of_gloo_error("Connect timeout [127.0.0.1]:1"), Code::kTimeout);
  EXPECT_EQ(code_of_gloo_error("epoll_ctl: Bad file descriptor"), Code::kTransport);
  EXPECT_EQ(readable_gloo_error(as_gloo_tells("", 5, " is odd\n")), "[0.0.0.0]:5 is odd");
  EXPECT_EQ(readable_gloo_error("[::1]:x and [::1]:700000"), "[::1]:x and [::1]:700000");
}

}  // namespace
}  // namespace lockstep
