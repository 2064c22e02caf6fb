// The memory that ranks of one host share: who gets it, and what a rank says that does not.
#include "reducer/comm/gloo/host_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "reducer/comm/gloo/file_store.h"
#include "reducer/comm/gloo/group_test_util.h"

namespace lockstep {
namespace {

using namespace lockstep::testing;  // NOLINT
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// The fields of an invitation, by their offset; host_memory.cc has the struct.
constexpr std::size_t kFileAt = 4;
constexpr std::size_t kProcessAt = 8;
constexpr std::size_t kBootAt = 16;
constexpr std::size_t kSecretAt = 56;

std::string why_not(const std::string& invitation) {
  HostMemory memory(1, 2);
  memory.open(invitation);
  EXPECT_FALSE(memory.is_mapped());
  memory.settle(kNone);
  EXPECT_EQ(memory.rounds(), nullptr);
  return memory.why_not();
}

template <class T>
std::string with(std::string invitation, std::size_t at, T value) {
  std::memcpy(invitation.data() + at, &value, sizeof value);
  return invitation;
}

TEST(HostMemory, IsOpenedByWhoeverHasTheInvitation) {
  HostMemory made(0, 2);
  const std::string invitation = made.make_and_invite();
  ASSERT_TRUE(made.is_mapped()) << made.why_not();
  HostMemory opened(1, 2);
  opened.open(invitation);
  ASSERT_TRUE(opened.is_mapped()) << opened.why_not();
  made.settle(kNone);
  opened.settle(kNone);
  ASSERT_NE(made.rounds(), nullptr);
  ASSERT_NE(opened.rounds(), nullptr);
  std::memcpy(made.rounds()->place(), "from 0", 7);
  std::memcpy(opened.rounds()->place(), "from 1", 7);
  on_ranks(2, [&](int rank) {
    SharedRounds& rounds = *(rank == 0 ? made : opened).rounds();
    Progress progress;
    Waiter waiter;
    waiter.progress = &progress;
    ASSERT_EQ(rounds.exchange(waiter), SharedRounds::End::kDone);
    EXPECT_STREQ(reinterpret_cast<const char*>(rounds.place_of(1 - rank)),
                 rank == 0 ? "from 1" : "from 0");
    EXPECT_EQ(progress.steps(), 1u);
  });
}

TEST(HostMemory, OfAnotherHostContainerOrJobIsNotOpened) {
  HostMemory made(0, 2);
  const std::string invitation = made.make_and_invite();
  ASSERT_TRUE(made.is_mapped()) << made.why_not();
  EXPECT_EQ(why_not(""), "rank 0 shares no memory");
  EXPECT_EQ(why_not(std::string(invitation.size(), 'x')), "rank 0 shares no memory");
  EXPECT_EQ(why_not(with(invitation, kBootAt, 'x')), "rank 0 is on another host");
  const auto nobody = std::int64_t{1} << 40;
  EXPECT_THAT(why_not(with(invitation, kProcessAt, nobody)), HasSubstr("No such file"));
  // In another container the number may be that of another process, whose file is another one.
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_THAT(why_not(with(invitation, kFileAt, file)), HasSubstr("another container"));
  ::close(file);
  const int memory = ::memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_THAT(why_not(with(invitation, kFileAt, memory)), HasSubstr("another container"));
  ::close(memory);
  HostMemory another_job(0, 2);
  ASSERT_FALSE(another_job.make_and_invite().empty());
  EXPECT_THAT(why_not(with(invitation, kSecretAt, 0)), HasSubstr("another container"));
}

// Lowers the limit for files, as `ulimit -f` does.
class FewBytesInAFile {
 public:
  FewBytesInAFile() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit few{100'000, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &few);
  }
  ~FewBytesInAFile() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FewBytesInAFile(const FewBytesInAFile&) = delete;
  FewBytesInAFile& operator=(const FewBytesInAFile&) = delete;

 private:
  rlimit before_{};
};

// Why each rank's group does not share memory, where rank `different` has other options.
std::vector<std::string> reasons_of_groups(int size, int different,
                                           const GlooContextOptions& other) {
  auto store = std::make_shared<HashStore>();
  std::vector<std::string> reasons(static_cast<std::size_t>(size));
  on_ranks(size, [&](int rank) {
    GlooContextOptions options = rank == different ? other : GlooContextOptions();
    auto group = GlooProcessGroup::connect(store, rank, size, {}, options);
    ASSERT_TRUE(group.has_value()) << group.error().to_string();
    EXPECT_TRUE(sum_once(**group).ok());
    reasons[static_cast<std::size_t>(rank)] = (*group)->context()->why_no_shared_memory();
  });
  return reasons;
}

TEST(HostMemory, IsUsedByAllRanksOrByNone) {
  EXPECT_THAT(reasons_of_groups(3, kNone, {}), ::testing::Each(""));
  GlooContextOptions no_memory;
  no_memory.share_memory = false;
  const std::string forbidden = "the options of the context forbid it";
  EXPECT_THAT(reasons_of_groups(3, 1, no_memory),
              ::testing::ElementsAre("rank 1 cannot use the shared memory", forbidden,
                                     "rank 1 cannot use the shared memory"));
  EXPECT_THAT(
      reasons_of_groups(3, 0, no_memory),
      ::testing::ElementsAre(forbidden, "rank 0 shares no memory", "rank 0 shares no memory"));
  const FewBytesInAFile limit;
  EXPECT_THAT(reasons_of_groups(2, kNone, {}),
              ::testing::ElementsAre(HasSubstr("(ulimit -f) is below"), "rank 0 shares no memory"));
}

// The bits of one collective on all ranks.
using Bits = std::vector<std::vector<std::byte>>;

Bits bits_of(Groups& groups, const Collective& what, unsigned seed) {
  Bits bits(groups.size());
  on_groups(groups, [&](int rank, GlooProcessGroup& group) {
    std::mt19937 random(seed + static_cast<unsigned>(rank));
    const auto count = static_cast<std::size_t>(what.count);
    Elements data(what.dtype, count);
    const bool is_byte = what.dtype == DType::kByte;
    for (std::size_t i = 0; i < count; ++i)  // They round when they are added.
      data.put(i, is_byte ? static_cast<double>(random() % 200)
                          : static_cast<double>(random()) / 3e6 - 700);
    Elements gathered(what.dtype, what.op == Op::kAllGather ? count * groups.size() : 0);
    Collective collective = what;
    collective.data = data.data();
    collective.gathered = gathered.data();
    const Status status = run(group, collective);
    ASSERT_TRUE(status.ok()) << status.to_string();
    bits[static_cast<std::size_t>(rank)] =
        what.op == Op::kAllGather ? gathered.bits() : data.bits();
  });
  return bits;
}

class Ranks : public ::testing::TestWithParam<int> {};

// G3: the oracle is Gloo's own all-reduce over TCP. The counts lie around a cache line, around what
// all ranks add themselves, and around one place and several.
TEST_P(Ranks, G3HaveTheBitsOfGloosRingOverTcp) {
  GlooOptions options;
  options.max_segment_bytes = 50'000;
  GlooContextOptions over_tcp;
  over_tcp.share_memory = false;
  Groups shared = connect_threads(GetParam(), options, {});
  Groups tcp = connect_threads(GetParam(), options, over_tcp);
  ASSERT_EQ(shared[0]->context()->why_no_shared_memory(), "");
  unsigned seed = 1;
  const auto expect_equal = [&](const Collective& collective) {
    seed += 100;
    const Bits expected = bits_of(tcp, collective, seed);
    EXPECT_EQ(bits_of(shared, collective, seed), expected)
        << name_of(collective.op) << " of " << collective.count << " " << name_of(collective.dtype)
        << (collective.verify ? ", verified" : "") << ", times " << collective.factor;
  };
  for (const std::uint64_t count : {0, 1, 15, 17, 1000, 4099, 65'503, 65'505, 300'000}) {
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
      Collective sum;
      sum.dtype = dtype;
      sum.count = count;
      expect_equal(sum);
      if (dtype == DType::kFloat32 || dtype == DType::kFloat64) {
        sum.factor = 1.0 / GetParam();
        expect_equal(sum);
      }
      sum.reduction = Reduction::kRankOrdered;
      expect_equal(sum);
      sum.verify = true;
      expect_equal(sum);
    }
    for (const Op op : {Op::kBroadcast, Op::kAllGather}) {
      Collective other;
      other.op = op;
      other.dtype = DType::kByte;
      other.count = count;
      other.root = GetParam() - 1;
      expect_equal(other);
      other.verify = true;
      expect_equal(other);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HostMemory, Ranks, ::testing::Values(2, 3, 4, 5),
                         ::testing::PrintToStringParamName());

std::set<std::string> files_of(const char* folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.insert(entry.path().filename());
  return names;
}

// Ranks are killed in the middle of sums, once at the begin and then later and later.
TEST(HostMemory, OfKilledRanksLeavesNothingBehind) {
  const auto before = files_of("/dev/shm");
  for (int round = 0; round < 8; ++round) {
    TemporaryDirectory directory;
    Processes ranks(3, [&](int rank) {
      auto store = std::make_shared<FileStore>(directory.path());
      GlooContextOptions connection;
      connection.timeout = seconds(40);
      auto group = GlooProcessGroup::connect(store, rank, 3, with_timeout(seconds(40)), connection);
      if (!group) return 1;
      Status status;
      while (status.ok()) status = sum_once(**group, 200'000);
      return status.code() == Code::kPeerLost ? 0 : 2;
    });
    pause_for(milliseconds(300 + 7 * round));
    ranks.signal(round % 3, SIGKILL);
    for (int rank = 0; rank < 3; ++rank)
      if (rank != round % 3) {
        EXPECT_EQ(ranks.wait(rank), 0) << "rank " << rank << ", round " << round;
      }
  }
  EXPECT_EQ(files_of("/dev/shm"), before);
}

}  // namespace
}  // namespace lockstep
