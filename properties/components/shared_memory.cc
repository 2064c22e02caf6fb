// This component checks the collectives of ranks that share memory (reducer/comm/shared_rounds.h,
// shared_collectives.h): a few of them, one after the other, in places that are small, so that most
// take several rounds. Every rank ends each collective with the right bits, in the order that
// reference/order.h has for Gloo's ring (G3), whatever the schedule is. If a rank calls for
// something else, all ranks notice (F6). If a rank leaves, or its waits are interrupted, the others
// still end what it has taken part in, and then learn that it is gone (F1, F2).
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "properties/components/checks.h"
#include "properties/components/virtual_sleep.h"
#include "reducer/comm/shared_collectives.h"
#include "reference/order.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using End = SharedCollective::End;

constexpr std::uint64_t kSegmentBytes = 256;
constexpr auto kLongest = std::chrono::microseconds(50);

// Fibers that sleep; the bells are words of the memory.
class FiberSleep final : public SharedRounds::Sleep {
 public:
  void sleep(SharedRounds::Word& bell, std::uint32_t seen) override {
    platform::MutexLock lock(mutex_);
    rung_.wait(mutex_, platform::Deadline::never(), [&] { return bell.load() != seen; });
  }
  void wake(SharedRounds::Word&) override {
    platform::MutexLock lock(mutex_);
    rung_.notify_all();
  }

 private:
  platform::Mutex mutex_{"test.bells"};
  platform::CondVar rung_{"test.bells.rung"};
};

// A collective that all ranks run alike.
struct Shared {
  Collective collective;
  std::uint32_t values = 0;  // decides the ranks' elements
};

struct SharedRank {
  std::unique_ptr<SharedRounds> rounds;
  std::size_t ended = 0;  // collectives that ended well
  End end = End::kDone;
  int named = kNone;
  int lost = kNone;  // the rank of which it has heard that it has left in peace
  std::string flaw;
};

class SharedCase {
 public:
  explicit SharedCase(Choices& choices) : chance_(choices) {
    size_ = static_cast<int>(chance_.between(2, 4));
    accident_ = static_cast<Accident>(chance_.below(kAccidents));
    victim_ = static_cast<int>(chance_.below(static_cast<std::uint32_t>(size_)));
    all_.resize(chance_.between(1, 4));
    at_ = chance_.below(static_cast<std::uint32_t>(all_.size()));
    when_ = kLongest * chance_.below(100) / 100;
    place_bytes_ =
        SharedCollective::least_place_bytes(size_) + SharedRounds::kAlignment * chance_.below(4);
    for (Shared& each : all_) each = draw_collective();
  }

  std::string judge() {
    const std::size_t bytes = SharedRounds::bytes_for(size_, place_bytes_);
    memory_.resize(bytes / sizeof(Line) + 1);
    auto* const memory = reinterpret_cast<std::byte*>(memory_.data());
    SharedRounds::prepare(memory, size_);
    ranks_.resize(static_cast<std::size_t>(size_));
    for (int rank = 0; rank < size_; ++rank)
      at(rank).rounds = std::make_unique<SharedRounds>(memory, rank, size_, place_bytes_, sleep_);
    std::vector<platform::Thread> threads;
    for (int rank = 0; rank < size_; ++rank)
      threads.emplace_back("rank " + std::to_string(rank), [this, rank] { run(rank); });
    if (accident_ == Accident::kIsInterrupted) {
      virtual_sleep(when_);
      at(victim_).rounds->interrupt();
    }
    for (platform::Thread& thread : threads) thread.join();
    for (int rank = 0; rank < size_; ++rank)
      if (std::string flaw = flaw_of(rank); !flaw.empty())
        return fmt::format("rank {}: {}", rank, flaw);
    return {};
  }

 private:
  enum class Accident : std::uint8_t { kNone, kDiffers, kLeaves, kIsInterrupted };
  static constexpr std::uint32_t kAccidents = 4;
  struct alignas(SharedRounds::kAlignment) Line {
    std::byte bytes[SharedRounds::kAlignment];
  };

  SharedRank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  Shared draw_collective() {
    constexpr std::array kOps{Op::kAllReduceSum, Op::kBroadcast, Op::kAllGather};
    Shared drawn;
    Collective& collective = drawn.collective;
    collective.op = kOps[chance_.below(kOps.size())];
    // Around a line, what all ranks add themselves, and one place or several.
    collective.count = chance_.percent(50) ? chance_.below(40) : chance_.below(4000);
    collective.root = static_cast<int>(chance_.below(static_cast<std::uint32_t>(size_)));
    collective.reduction = chance_.percent(30) ? Reduction::kRankOrdered : Reduction::kNative;
    if (collective.op == Op::kAllReduceSum && chance_.percent(30)) collective.factor = 1.0 / 3;
    collective.verify = chance_.percent(20);
    drawn.values = chance_.below(1000);
    return drawn;
  }

  // They round when they are added.
  static float value(const Shared& what, int rank, std::uint64_t index) {
    const auto number = static_cast<std::uint32_t>(index * 2654435761u + what.values * 40503u +
                                                   static_cast<std::uint32_t>(rank) * 7919u);
    return static_cast<float>(number % 1'000'003u) / 7.0f;
  }

  std::vector<float> right_sums(const Shared& what) const {
    const auto ranks = static_cast<std::uint32_t>(size_);
    const std::uint64_t count = what.collective.count;
    const auto factor = static_cast<float>(what.collective.factor);
    const bool is_ring = what.collective.reduction == Reduction::kNative && !what.collective.verify;
    std::vector<float> sums;
    if (count == 0) return sums;
    for (const reference::OrderRun& run :
         is_ring ? reference::gloo_ring(ranks, count, sizeof(float), kSegmentBytes)
                 : reference::rank_order(ranks, count))
      for (std::uint64_t i = sums.size(); i < run.end; ++i) {
        std::array<float, 4> x{};
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
          x[rank] = factor * value(what, static_cast<int>(rank), i);
        for (std::uint32_t k = 0; k + 1 < ranks; ++k)
          x[run.additions[k].into] += x[run.additions[k].from];
        sums.push_back(x[run.result]);
      }
    return sums;
  }

  std::vector<float> right(const Shared& what) const {
    if (what.collective.op == Op::kAllReduceSum) return right_sums(what);
    const bool is_gather = what.collective.op == Op::kAllGather;
    std::vector<float> all;
    for (int rank = 0; rank < (is_gather ? size_ : 1); ++rank)
      for (std::uint64_t i = 0; i < what.collective.count; ++i)
        all.push_back(value(what, is_gather ? rank : what.collective.root, i));
    return all;
  }

  void run(int rank) {
    SharedRank& self = at(rank);
    Progress progress;
    Waiter waiter;
    waiter.progress = &progress;
    FrameMemory frames;
    for (std::size_t number = 0; number < all_.size(); ++number) {
      const bool is_place = rank == victim_ && number == at_;
      if (is_place && accident_ == Accident::kLeaves) break;
      if (self.lost != kNone) {  // As a group does, it begins nothing any more.
        self.end = End::kLost;
        self.named = self.lost;
        break;
      }
      const Shared& what = all_[number];
      std::uint64_t header = number;
      if (is_place && accident_ == Accident::kDiffers) header = 1000;
      SharedCollective shared(*self.rounds, waiter, std::as_bytes(std::span(&header, 1)),
                              kSegmentBytes);
      std::vector<float> data;
      for (std::uint64_t i = 0; i < what.collective.count; ++i)
        data.push_back(value(what, rank, i));
      std::vector<float> gathered(
          what.collective.op == Op::kAllGather ? data.size() * static_cast<std::size_t>(size_) : 0);
      Collective collective = what.collective;
      collective.data = reinterpret_cast<std::byte*>(data.data());
      collective.gathered = reinterpret_cast<std::byte*>(gathered.data());
      const CollectiveId id{1, static_cast<std::int64_t>(number)};
      self.end = shared.run(collective, id, frames);
      self.named = self.end == End::kMismatch ? shared.different()
                                              : waiter.peer.load(std::memory_order_relaxed);
      if (self.end != End::kDone) break;
      ++self.ended;
      if ((collective.op == Op::kAllGather ? gathered : data) != right(what) && self.flaw.empty())
        self.flaw = fmt::format("a wrong result of {} of {} elements", name_of(collective.op),
                                collective.count);
    }
    // Where a rank has lost another one it stays, as a group does. Of any other end all ranks hear.
    if (self.end == End::kLost) return;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank) continue;
      if (accident_ == Accident::kLeaves) at(peer).lost = rank;
      at(peer).rounds->lose(rank);
    }
  }

  std::string flaw_of(int rank) {
    const SharedRank& self = at(rank);
    if (!self.flaw.empty()) return self.flaw;
    const bool has_all = self.ended == all_.size();
    const bool is_victim = rank == victim_;
    const std::string ended = fmt::format("{} of {} collectives end well, and then comes end {}",
                                          self.ended, all_.size(), static_cast<int>(self.end));
    switch (accident_) {
      case Accident::kNone: return has_all ? "" : "without an accident " + ended;
      case Accident::kDiffers:
        if (self.ended != at_ || self.end != End::kMismatch)
          return "where a rank calls for something else " + ended;
        return is_victim || self.named == victim_
                   ? ""
                   : "it names another rank for the one that differs";
      case Accident::kLeaves:
        if (is_victim) return self.ended == at_ ? "" : "before it leaves " + ended;
        if (self.ended != at_ || self.end != End::kLost) return "where a rank leaves " + ended;
        return size_ > 2 || self.named == victim_ ? ""
                                                  : "it names another rank for the one that left";
      case Accident::kIsInterrupted:
        if (has_all) return "";
        if (self.end != (is_victim ? End::kInterrupted : End::kLost))
          return "where a rank is interrupted " + ended;
        return "";
    }
    return {};
  }

  Choices& chance_;
  int size_ = 2;
  Accident accident_ = Accident::kNone;
  int victim_ = 0;
  std::vector<Shared> all_;
  std::size_t at_ = 0;  // the collective in which the accident happens
  platform::Duration when_{};
  std::size_t place_bytes_ = 0;
  std::vector<Line> memory_;
  FiberSleep sleep_;
  std::vector<SharedRank> ranks_;
};

}  // namespace

std::string check_shared_memory(Choices& choices) { return SharedCase(choices).judge(); }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
