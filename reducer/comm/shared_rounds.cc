#include "reducer/comm/shared_rounds.h"

#include <memory>
#include <new>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

std::size_t SharedRounds::bytes_for(int ranks, std::size_t place_bytes) {
  return static_cast<std::size_t>(ranks) * (sizeof(Words) + 2 * place_bytes);
}

void SharedRounds::prepare(std::byte* memory, int ranks) {
  LOCKSTEP_CHECK_LT(1, ranks);
  auto* const words = reinterpret_cast<Words*>(memory);
  for (int rank = 0; rank < ranks; ++rank) std::construct_at(words + rank);
}

SharedRounds::SharedRounds(std::byte* memory, int rank, int ranks, std::size_t place_bytes,
                           Sleep& sleep)
    : memory_(memory),
      rank_(rank),
      ranks_(ranks),
      place_bytes_(place_bytes),
      sleep_(sleep),
      is_lost_(static_cast<std::size_t>(ranks)) {
  LOCKSTEP_CHECK_LE(0, rank);
  LOCKSTEP_CHECK_LT(rank, ranks);
  LOCKSTEP_CHECK_EQ(place_bytes % kAlignment, 0u);
  LOCKSTEP_CHECK_EQ(reinterpret_cast<std::uintptr_t>(memory) % kAlignment, 0u);
}

SharedRounds::Words& SharedRounds::words_of(int rank) const {
  return std::launder(reinterpret_cast<Words*>(memory_))[rank];
}

std::byte* SharedRounds::place_at(int rank, std::uint32_t round) const {
  LOCKSTEP_CHECK_LE(0, rank);
  LOCKSTEP_CHECK_LT(rank, ranks_);
  const std::size_t index = 2 * static_cast<std::size_t>(rank) + round % 2;
  return memory_ + static_cast<std::size_t>(ranks_) * sizeof(Words) + index * place_bytes_;
}

// A peer is in this round, or in the next one, for which it waits. The numbers may have wrapped.
bool SharedRounds::has_come(int peer) const {
  const std::uint32_t ahead = words_of(peer).published.load() - round_;
  LOCKSTEP_CHECK(ahead + 1 <= 2);  // It cannot be two rounds ahead of a rank, nor behind it.
  return ahead != ~std::uint32_t{0};
}

// Whether a peer has gone without having come: then the round ends for nobody, and a peer that
// knows it does not come to the next one. `waiter` gets its number. A peer may have come before it
// went, so whether it went is looked at first.
bool SharedRounds::lacks_a_peer(Waiter& waiter) const {
  for (int peer = 0; peer < ranks_; ++peer) {
    const bool has_gone = is_lost_[static_cast<std::size_t>(peer)].load();
    if (!has_gone || has_come(peer)) continue;
    waiter.peer.store(peer, std::memory_order_relaxed);
    return true;
  }
  return false;
}

void SharedRounds::ring(int rank) {
  Word& bell = words_of(rank).bell;
  bell.fetch_add(1);
  sleep_.wake(bell);
}

SharedRounds::End SharedRounds::exchange(Waiter& waiter) {
  words_of(rank_).published.store(++round_);
  platform::yield();
  const auto self = static_cast<std::uint32_t>(rank_) + 1;
  for (int peer = 0; peer < ranks_; ++peer)
    if (peer != rank_ && words_of(peer).waits_for.load() == self) ring(peer);
  for (int step = 1; step < ranks_; ++step)
    if (const End end = await((rank_ + step) % ranks_, waiter); end != End::kDone) return end;
  waiter.progress->note();
  return End::kDone;
}

SharedRounds::End SharedRounds::await(int peer, Waiter& waiter) {
  if (has_come(peer)) return End::kDone;
  waiter.peer.store(peer, std::memory_order_relaxed);
  Words& mine = words_of(rank_);
  for (;;) {
    const std::uint32_t seen = mine.bell.load();
    mine.waits_for.store(static_cast<std::uint32_t>(peer) + 1);
    platform::yield();
    const bool lacks_one = lacks_a_peer(waiter);
    const bool has_ended = has_come(peer);
    const bool is_interrupted = is_interrupted_.load();
    if (has_ended || lacks_one || is_interrupted) {
      mine.waits_for.store(0);
      return has_ended ? End::kDone : is_interrupted ? End::kInterrupted : End::kLost;
    }
    platform::yield();
    sleep_.sleep(mine.bell, seen);
  }
}

void SharedRounds::interrupt() {
  is_interrupted_.store(true);
  ring(rank_);
}

void SharedRounds::lose(int peer) {
  LOCKSTEP_CHECK(peer != rank_);
  is_lost_[static_cast<std::size_t>(peer)].store(true);
  ring(rank_);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
