// Seals, and the collectives that they verify, over an exchange in memory that a test can disturb
// (F3).
#include "reducer/comm/verified.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "reducer/comm/seal.h"

namespace lockstep {
namespace {

using Disturb = std::function<void(int from, std::uint32_t step, std::byte* frames, std::size_t)>;

// The memory through which the ranks of a test exchange frames.
struct Table {
  explicit Table(int ranks) : size(ranks), out(static_cast<std::size_t>(ranks)), barrier(ranks) {}
  const int size;
  std::vector<std::vector<std::byte>> out;
  std::barrier<> barrier;
  Disturb disturb;
};

class TableExchange final : public FrameExchange {
 public:
  TableExchange(Table& table, int rank) : table_(table), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return table_.size; }

  bool exchange(std::byte* out, std::byte* in, std::size_t frame_bytes) override {
    const auto world = static_cast<std::size_t>(table_.size);
    const auto self = static_cast<std::size_t>(rank_);
    if (table_.disturb) table_.disturb(rank_, step_, out, frame_bytes);
    ++step_;
    table_.out[self].assign(out, out + world * frame_bytes);
    table_.barrier.arrive_and_wait();
    for (std::size_t r = 0; r < world; ++r)
      std::memcpy(in + r * frame_bytes, table_.out[r].data() + self * frame_bytes, frame_bytes);
    table_.barrier.arrive_and_wait();
    return true;
  }

  void add_in_order(const Collective&, const std::byte* parts, std::size_t stride,
                    std::size_t bytes, std::byte* sum) override {
    for (std::size_t at = 0; at < bytes; at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, parts + at, sizeof value);
      for (std::size_t r = 1; r < static_cast<std::size_t>(table_.size); ++r) {
        float next = 0;
        std::memcpy(&next, parts + r * stride + at, sizeof next);
        value += next;
      }
      std::memcpy(sum + at, &value, sizeof value);
    }
  }

 private:
  Table& table_;
  const int rank_;
  std::uint32_t step_ = 0;
};

struct Outcome {
  bool ok = false;
  Flaw flaw;
  std::vector<float> data;
  std::vector<float> gathered;
};

// Runs one collective on all ranks; rank r contributes (r + 1) * (i + 1). A rank that finds a flaw
// leaves.
std::vector<Outcome> run_all(int ranks, Op op, std::uint64_t count, const Disturb& disturb,
                             std::vector<FrameMemory>& memory) {
  Table table(ranks);
  table.disturb = disturb;
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  memory.resize(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      for (std::uint64_t i = 0; i < count; ++i)
        outcome.data.push_back(static_cast<float>(rank + 1) * static_cast<float>(i + 1));
      outcome.gathered.resize(count * static_cast<std::uint64_t>(ranks));
      Collective collective;
      collective.op = op;
      collective.count = count;
      collective.root = ranks - 1;
      collective.data = reinterpret_cast<std::byte*>(outcome.data.data());
      collective.gathered = reinterpret_cast<std::byte*>(outcome.gathered.data());
      TableExchange exchange(table, rank);
      outcome.ok = run_verified(collective, {3, 7}, exchange,
                                memory[static_cast<std::size_t>(rank)], outcome.flaw);
      if (!outcome.ok) table.barrier.arrive_and_drop();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<Outcome> run_all(int ranks, Op op, std::uint64_t count, const Disturb& disturb) {
  std::vector<FrameMemory> memory;
  return run_all(ranks, op, count, disturb, memory);
}

bool is_right(const Outcome& outcome, Op op, int ranks) {
  for (std::size_t i = 0; i < outcome.data.size(); ++i) {
    const auto value = static_cast<float>(i + 1);
    const float sum = static_cast<float>(ranks * (ranks + 1) / 2) * value;
    const float broadcast = static_cast<float>(ranks) * value;
    if (op == Op::kAllReduceSum && outcome.data[i] != sum) return false;
    if (op == Op::kBroadcast && outcome.data[i] != broadcast) return false;
    for (int r = 0; op == Op::kAllGather && r < ranks; ++r)
      if (outcome.gathered[static_cast<std::size_t>(r) * outcome.data.size() + i] !=
          static_cast<float>(r + 1) * value)
        return false;
  }
  return true;
}

constexpr Op kOps[] = {Op::kAllReduceSum, Op::kBroadcast, Op::kAllGather};

TEST(Verified, F3UndisturbedCollectivesAreExactForEveryCount) {
  std::vector<FrameMemory> memory;  // It is used again, for larger and smaller collectives in turn.
  for (const int ranks : {2, 3, 5})
    for (const Op op : kOps)
      for (const std::uint64_t count : {1u, 2u, 3u, 4u, 5u, 16u, 100u, 7u})
        for (const Outcome& outcome : run_all(ranks, op, count, nullptr, memory)) {
          ASSERT_TRUE(outcome.ok) << outcome.flaw.what;
          ASSERT_TRUE(is_right(outcome, op, ranks)) << name_of(op) << " of " << count;
        }
}

// Flips each bit of a frame in turn, its seal and its padding included, in each exchange.
TEST(Verified, F3EveryFlippedBitIsFoundByItsReceiverWhoNamesTheSender) {
  for (const Op op : kOps)
    for (const std::uint32_t step : {0u, 1u}) {
      if (op == Op::kAllGather && step > 0) continue;
      for (std::size_t bit = 0; bit < std::size_t{8} * 128; bit += 3) {
        const auto outcomes = run_all(
            3, op, 9, [&](int from, std::uint32_t at, std::byte* frames, std::size_t bytes) {
              if (from == 1 && at == step)
                frames[2 * bytes + bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
            });
        ASSERT_FALSE(outcomes[2].ok) << name_of(op) << ", step " << step << ", bit " << bit;
        ASSERT_EQ(outcomes[2].flaw.sender, 1);
        ASSERT_FALSE(outcomes[2].flaw.what.empty());
      }
    }
}

// The error says what is wrong, where that can be known.
TEST(Verified, F3MisplacedFramesTellWhatTheyAre) {
  const auto swapped =
      run_all(3, Op::kAllReduceSum, 9, [](int from, std::uint32_t at, std::byte* f, std::size_t n) {
        if (from == 0 && at == 0) std::swap_ranges(f + n, f + 2 * n, f + 2 * n);
      });
  for (const std::size_t rank : {1u, 2u}) {
    ASSERT_FALSE(swapped[rank].ok);
    EXPECT_EQ(swapped[rank].flaw.sender, 0);
    EXPECT_NE(
        swapped[rank].flaw.what.find("it got what rank 0 had for rank " + std::to_string(3 - rank)),
        std::string::npos)
        << swapped[rank].flaw.what;
  }
  std::vector<std::byte> before;
  const auto stale = run_all(2, Op::kAllReduceSum, 9,
                             [&](int from, std::uint32_t at, std::byte* f, std::size_t n) {
                               if (from == 0 && at == 0) before.assign(f + n, f + 2 * n);
                               if (from == 0 && at == 1)
                                 std::copy(before.begin(), before.end(), f + n);
                             });
  ASSERT_FALSE(stale[1].ok);
  EXPECT_EQ(stale[1].flaw.sender, 0);
  EXPECT_NE(stale[1].flaw.what.find("in exchange 0 of collective 7"), std::string::npos)
      << stale[1].flaw.what;
}

Seal seal_for(std::uint64_t bytes) {
  Seal seal;
  seal.group = 1;
  seal.sequence = 5;
  seal.bytes = bytes;
  seal.from = 2;
  seal.to = 3;
  return seal;
}

TEST(Seal, F3IsOfThisCollectiveSenderReceiverAndLength) {
  std::vector<std::byte> frame(kSealBytes + 128, std::byte{7});
  put_seal(seal_for(100), frame.data(), frame.size());
  EXPECT_EQ(flaw_of(seal_for(100), frame.data(), frame.size()), "");
  const std::function<void(Seal&)> changes[] = {
      [](Seal& s) { ++s.group; }, [](Seal& s) { ++s.sequence; }, [](Seal& s) { ++s.bytes; },
      [](Seal& s) { ++s.from; },  [](Seal& s) { ++s.to; },       [](Seal& s) { ++s.step; },
  };
  for (const auto& change : changes) {
    Seal expected = seal_for(100);
    change(expected);
    EXPECT_NE(flaw_of(expected, frame.data(), frame.size()), "");
  }
}

TEST(Seal, F3ShiftedAndTruncatedFramesAreNotWhole) {
  std::vector<std::byte> frame(kSealBytes + 64);
  for (std::size_t i = 0; i < frame.size(); ++i) frame[i] = static_cast<std::byte>(i * 37 + 1);
  put_seal(seal_for(64), frame.data(), frame.size());
  for (std::size_t bytes = 1; bytes < frame.size(); ++bytes) {
    std::vector<std::byte> shifted = frame;
    std::rotate(shifted.begin(), shifted.end() - static_cast<std::ptrdiff_t>(bytes), shifted.end());
    ASSERT_NE(flaw_of(seal_for(64), shifted.data(), shifted.size()), "") << bytes;
    std::vector<std::byte> truncated = frame;
    std::fill(truncated.end() - static_cast<std::ptrdiff_t>(bytes), truncated.end(), std::byte{0});
    ASSERT_NE(flaw_of(seal_for(64), truncated.data(), truncated.size()), "") << bytes;
  }
}

TEST(Verified, F2TheFailureNamesTheSenderAndWhoFoundIt) {
  const Failure failure = corrupted({2, "the checksum does not fit"}, 1);
  EXPECT_EQ(failure.code, Code::kCorrupted);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.suspect, 2);
  EXPECT_TRUE(failure.definite);
  EXPECT_NE(failure.detail.find("rank 2"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
