// SharedRounds lets the ranks of one host exchange data through memory that all of them map.
//
// The ranks work in rounds. In each round every rank writes to its place(), and calls exchange(),
// which returns when all ranks have written; then it reads what the others wrote, place_of(rank). A
// rank has two places, which it uses in turn: in round n + 2 it writes where it wrote in round n,
// and by then every rank has begun round n + 1, and so has read round n. What a rank reads stays
// there until it calls exchange() again, and may be changed afterwards.
//
//   std::memcpy(rounds.place(), mine, bytes);
//   if (rounds.exchange(waiter) != SharedRounds::End::kDone) return;
//   std::memcpy(theirs, rounds.place_of(peer), bytes);
//
// Waiting. A rank that waits says for whom, and sleeps until its bell rings: a number in the shared
// memory, which whoever ends the wait increments. It reads the number first, then says for whom it
// waits, then looks whether the peer has come; the peer writes that it has come, then looks who
// waits. All of these are sequentially consistent, so that one of the two sees the other.
//
// Threads: one thread uses the places and exchange(); interrupt() and lose() any thread.
// Ownership: the memory, of bytes_for() bytes and aligned to kAlignment, outlives the object.
// prepare() is called once for the memory, before any rank uses it.
// Failure: a wait ends by interrupt(), or by lose() of any peer that has not come to the round.
// Nothing is wrong with the memory then, but the ranks may be in different rounds: it is not used
// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reducer/comm/waiter.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class SharedRounds {
 public:
  using Word = platform::Atomic<std::uint32_t>;
  static constexpr std::size_t kAlignment = 64;

  enum class End : std::uint8_t {
    kDone,
    kInterrupted,
    kLost,  // The peer that Waiter::peer names has gone without having come.
  };

  // How a thread sleeps and wakes another one, which may belong to another process.
  class Sleep {
   public:
    virtual ~Sleep() = default;
    // Sleeps while `bell` is `seen`. It returns after the wake() of whoever has changed it, and may
    // return earlier.
    virtual void sleep(Word& bell, std::uint32_t seen) = 0;
    virtual void wake(Word& bell) = 0;
  };

  static std::size_t bytes_for(int ranks, std::size_t place_bytes);
  static void prepare(std::byte* memory, int ranks);
  // `place_bytes` is a multiple of kAlignment, and equal on all ranks.
  SharedRounds(std::byte* memory, int rank, int ranks, std::size_t place_bytes, Sleep& sleep);
  SharedRounds(const SharedRounds&) = delete;
  SharedRounds& operator=(const SharedRounds&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::size_t place_bytes() const { return place_bytes_; }

  // Where this rank writes before its next exchange().
  std::byte* place() { return place_at(rank_, round_ + 1); }
  End exchange(Waiter& waiter);
  // Returns what `rank`, which may be this rank, wrote before the latest exchange().
  const std::byte* place_of(int rank) const { return place_at(rank, round_); }

  // Ends the wait of this rank, and every later one that has something to wait for.
  void interrupt();
  // Says that `peer` has gone: what it has written is all that will come from it.
  void lose(int peer);

 private:
  struct Words {  // One rank's. The bell, which others write, has a cache line of its own.
    alignas(kAlignment) Word published{0};  // The latest round in which this rank has written.
    Word waits_for{0};                      // A rank + 1, or 0.
    alignas(kAlignment) Word bell{0};
  };

  Words& words_of(int rank) const;
  std::byte* place_at(int rank, std::uint32_t round) const;
  bool has_come(int peer) const;
  bool lacks_a_peer(Waiter& waiter) const;
  void ring(int rank);
  End await(int peer, Waiter& waiter);

  std::byte* const memory_;
  const int rank_;
  const int ranks_;
  const std::size_t place_bytes_;
  Sleep& sleep_;
  std::uint32_t round_ = 0;  // The latest one that this rank has begun; it may wrap around.
  platform::Atomic<bool> is_interrupted_{false};
  std::vector<platform::Atomic<bool>> is_lost_;  // By rank.
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
