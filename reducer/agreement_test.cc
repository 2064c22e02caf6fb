// Claim: ranks that describe themselves alike agree; otherwise every rank names the same rank and
// the same reason (B4). Each rank is a thread, and the group between them passes bytes through
// memory.
#include "reducer/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

// Where the ranks of a group leave what they send.
class MeetingTable {
 public:
  explicit MeetingTable(int size) : sent_(static_cast<std::size_t>(size)) {}

  // Waits for all ranks, and returns what each has sent.
  std::vector<Bytes> exchange(int rank, Bytes bytes) {
    std::unique_lock lock(mutex_);
    const int round = round_;
    sent_[static_cast<std::size_t>(rank)] = std::move(bytes);
    if (++came_ == static_cast<int>(sent_.size())) {
      came_ = 0;
      ++round_;
      all_ = sent_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round; });
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Bytes> sent_;
  std::vector<Bytes> all_;
  int came_ = 0;
  int round_ = 0;
};

class MeetingGroup final : public ProcessGroup {
 public:
  MeetingGroup(MeetingTable& table, int rank, int size) : table_(table), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool can_reduce(DType) const override { return true; }
  platform::Duration timeout() const override { return std::chrono::seconds(5); }
  void abort(const Status&) override {}
  Status start(const Collective& collective, Work& work) override {
    work.begin(next_++);
    const std::size_t bytes = collective.count * size_of(collective.dtype);
    Bytes mine(collective.data, collective.data + bytes);
    if (change) change(mine, next_ - 1);
    const std::vector<Bytes> all = table_.exchange(rank_, std::move(mine));
    if (collective.op == Op::kBroadcast)
      std::memcpy(collective.data, all[static_cast<std::size_t>(collective.root)].data(), bytes);
    for (std::size_t r = 0; collective.op == Op::kAllGather && r < all.size(); ++r)
      std::memcpy(collective.gathered + r * bytes, all[r].data(), bytes);
    work.complete(Status());
    return {};
  }

  // Changes what this rank sends in a collective with that number.
  std::function<void(Bytes&, std::int64_t)> change;

 private:
  MeetingTable& table_;
  const int rank_;
  const int size_;
  std::int64_t next_ = 0;
};

// Runs `act` on each rank of a group, and returns what each returned.
std::vector<Status> on_ranks(int size, const std::function<Status(MeetingGroup&)>& act) {
  MeetingTable table(size);
  std::vector<Status> results(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      MeetingGroup group(table, rank, size);
      results[static_cast<std::size_t>(rank)] = act(group);
    });
  for (std::thread& each : threads) each.join();
  return results;
}

using Lines = std::vector<std::string>;

std::vector<Status> agree_with(const std::vector<Lines>& lines) {
  return on_ranks(static_cast<int>(lines.size()), [&](MeetingGroup& group) {
    std::int64_t sequence = kNone;
    return agree(group, lines[static_cast<std::size_t>(group.rank())], {}, sequence);
  });
}

void expect_all_name(const std::vector<Status>& results, int rank, const std::string& words) {
  for (std::size_t r = 0; r < results.size(); ++r) {
    ASSERT_EQ(results[r].code(), Code::kDisagreement) << "rank " << r;
    const Failure& failure = results[r].failure();
    EXPECT_EQ(failure.rank, rank) << "rank " << r;
    EXPECT_EQ(failure.suspect, rank) << "rank " << r;
    EXPECT_EQ(failure.reported_by, static_cast<int>(r));
    EXPECT_TRUE(failure.definite);
    EXPECT_THAT(failure.detail, HasSubstr(words)) << "rank " << r;
  }
}

TEST(Agreement, B4RanksThatDescribeThemselvesAlikeAgree) {
  for (int size = 1; size <= 4; ++size) {
    const Lines lines{"a parameter", "another one"};
    for (const Status& status :
         agree_with(std::vector<Lines>(static_cast<std::size_t>(size), lines)))
      EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

TEST(Agreement, B4AllRanksNameTheFirstRankThatDiffersAndItsLine) {
  expect_all_name(agree_with({{"a", "b"}, {"a", "b"}, {"a", "x"}, {"y", "b"}}), 2,
                  "rank 0 has 'b', rank 2 has 'x'");
  expect_all_name(agree_with({{"a", "b"}, {"a"}}), 1, "rank 0 has 'b', rank 1 has nothing more");
  expect_all_name(agree_with({{}, {"a"}}), 1, "rank 0 has nothing more, rank 1 has 'a'");
}

TEST(Agreement, B4ARankThatRefusesTellsItsReasonAndTheLowestOneCounts) {
  const std::vector<Status> results = on_ranks(4, [](MeetingGroup& group) {
    std::int64_t sequence = kNone;
    Status own;
    if (group.rank() == 1) own = Status(Code::kOutOfMemory, "there is no memory for a bucket");
    if (group.rank() == 3) own = Status(Code::kInvalidArgument, "an option is wrong");
    return agree(group, {"a"}, own, sequence);
  });
  for (const int rank : {0, 2}) {
    const Failure& failure = results[static_cast<std::size_t>(rank)].failure();
    EXPECT_EQ(failure.code, Code::kOutOfMemory);
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(failure.suspect, 1);
    EXPECT_EQ(failure.reported_by, rank);
    EXPECT_THAT(failure.detail, HasSubstr("rank 1 refused: there is no memory for a bucket"));
  }
  EXPECT_EQ(results[1].failure().rank, 1);
  EXPECT_TRUE(results[1].failure().definite);
  EXPECT_EQ(results[3].code(), Code::kInvalidArgument) << "It keeps its own reason.";
  EXPECT_EQ(results[3].failure().rank, 3);
}

// The message of a rank begins with the kind of what it sends, and ends with its size.
TEST(Agreement, B4AMessageThatIsNoDescriptionNamesItsRank) {
  const auto with_number = [](std::size_t at, std::uint64_t number) {
    return on_ranks(3, [=](MeetingGroup& group) {
      if (group.rank() == 1)
        group.change = [=](Bytes& bytes, std::int64_t sequence) {
          if (sequence == 0) std::memcpy(bytes.data() + at * sizeof number, &number, sizeof number);
        };
      std::int64_t sequence = kNone;
      return agree(group, {"a"}, {}, sequence);
    });
  };
  expect_all_name(with_number(0, 7), 1, "rank 1 sent something else than a description of itself");
  expect_all_name(with_number(3, std::uint64_t{1} << 40), 1,
                  "rank 1 announces 1099511627776 bytes to describe itself");
}

TEST(Agreement, B4RanksThatHaveAgreedHearOfOneThatRefusesSince) {
  const std::vector<Status> results = on_ranks(2, [](MeetingGroup& group) {
    return agree_to_go_on(group, group.rank() == 0 ? Status() : Status(Code::kOutOfMemory, "none"));
  });
  EXPECT_EQ(results[0].code(), Code::kOutOfMemory);
  EXPECT_EQ(results[0].failure().rank, 1);
}

// Two groups whose second one has another process as rank 1, if `is_other`.
std::vector<Status> agree_on_two_groups(bool is_other) {
  MeetingTable table(3);
  return on_ranks(3, [&](MeetingGroup& first) {
    MeetingGroup second(table, first.rank(), 3);
    if (is_other && first.rank() == 1)
      second.change = [](Bytes& bytes, std::int64_t) { bytes.front() ^= std::byte{1}; };
    return agree_on_ranks(first, second);
  });
}

TEST(Agreement, P14BothGroupsHaveTheSameRanks) {
  for (const Status& status : agree_on_two_groups(false))
    EXPECT_TRUE(status.ok()) << status.to_string();
  for (const Status& status : agree_on_two_groups(true))
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep
