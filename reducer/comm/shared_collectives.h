// Collectives through SharedRounds, for ranks of one host. All of them are sequences of rounds of
// which each rank knows the number from the collective alone.
//
//   all-reduce  is done in pieces that fit into the places. In one round every rank publishes the
//               elements that others add; each rank then adds a part of the piece, in the order
//               that is wanted, and publishes the sums in the next round. A small one takes a
//               single round, after which each rank adds everything.
//   broadcast   the root publishes a piece in each round.
//   all-gather  every rank publishes a piece of its contribution in each round.
//   verified    the exchanges of verified.h, in pieces.
//
// The first round also has the ranks' headers, so that agreement (F6) costs no round of its own:
// nothing of another rank is used before the headers are equal. A rank whose header differs may
// call for any other collective; all ranks notice in that round, as they all compare with all.
//
// The order of additions. Each element is added in the order of ranks, or in the order of Gloo's
// ring: Gloo cuts the data into one chunk for each rank (ring_chunk_bytes), and the sum of chunk c
// begins at rank c - 1, and goes on with rank c - 2, and so on. The bits are those of Gloo's
// all-reduce over TCP, whatever the places' size is.
//
// Threads: one thread at a time runs a collective of the same rounds.
// Failure: a collective that does not end with kDone leaves the caller's memory half-written, and
// does not touch it any more; the rounds are not used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "reducer/comm/process_group.h"
#include "reducer/comm/shared_rounds.h"
#include "reducer/comm/verified.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// The bytes of one chunk of Gloo's ring (gloo/allreduce.cc), which is a whole number of elements.
std::uint64_t ring_chunk_bytes(std::uint64_t count, std::uint64_t width, std::uint64_t ranks,
                               std::uint64_t max_segment_bytes);

class SharedCollective {
 public:
  static constexpr std::size_t kHeaderBytes = 128;  // The room for a header in a place.
  // The places have room for a header and for at least a cache line for each rank.
  static std::size_t least_place_bytes(int ranks);

  enum class End : std::uint8_t {
    kDone,
    kInterrupted,
    kLost,       // As SharedRounds::End says.
    kMismatch,   // different() has another header.
    kCorrupted,  // flaw() says what was received.
  };

  // `header` has at most kHeaderBytes bytes; without one nothing is compared. `max_segment_bytes`
  // is that of Gloo's ring.
  SharedCollective(SharedRounds& rounds, Waiter& waiter, std::span<const std::byte> header,
                   std::uint64_t max_segment_bytes);

  // Compares headers, and moves nothing.
  End agree();
  // Compares headers and runs the collective. `id` and `memory` are used for a verified one.
  End run(const Collective& collective, const CollectiveId& id, FrameMemory& memory);

  int different() const { return different_; }
  // The header of another rank, after a mismatch.
  const std::byte* header_of(int rank) const { return rounds_.place_of(rank); }
  const Flaw& flaw() const { return flaw_; }

 private:
  class Frames;

  std::size_t room() const { return rounds_.place_bytes() - kHeaderBytes; }
  std::byte* place() { return rounds_.place() + kHeaderBytes; }
  const std::byte* place_of(int rank) const { return rounds_.place_of(rank) + kHeaderBytes; }
  bool exchange();
  bool all_reduce(const Collective& collective);
  bool all_reduce_small(const Collective& collective);
  bool broadcast(const Collective& collective);
  bool all_gather(const Collective& collective);
  template <class SourceOf>
  void add(const Collective& collective, std::uint64_t first_byte, std::size_t bytes,
           const SourceOf& source_of, std::byte* sum) const;

  SharedRounds& rounds_;
  Waiter& waiter_;
  const std::span<const std::byte> header_;
  const std::uint64_t max_segment_bytes_;
  bool has_agreed_ = false;
  End end_ = End::kDone;
  int different_ = kNone;
  Flaw flaw_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
