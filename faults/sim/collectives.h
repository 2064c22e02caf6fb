// The collectives of the simulated process group, as messages between ranks. They add in the same
// order as Gloo does, so that the bits are the same (G3 has the formulas). Sources: the ring and
// the bcube of gloo/allreduce.cc.
//
//   ring        A buffer is divided into `world` chunks of at least two segments. Data moves from
//               rank r to r-1. First every chunk travels around the ring once and is summed; it
//               ends on the rank with its number. Then the sums travel around the ring.
//   bcube       The ranks form groups in each round. The members of a group divide what they hold
//               among them, and each sums its part. Then the same rounds run backwards. The sizes
//               of the groups are the factors 2 of the world, then the rest.
//   rank order  Every rank receives its share of the elements from all others, adds the shares in
//               the order of the ranks, and sends the sums to all.
//   broadcast   The data travels from the root, from rank to rank, in the direction of the ring.
//   gather      Every contribution travels around the ring.
//
// Before any payload moves, agree() compares headers along the ring, so that no rank takes data
// from a neighbour that runs another collective. A rank that has not agreed never sends, and no
// result can be complete without every rank.
//
// Threads: one fiber of the rank calls these functions. All functions return false when the
// exchange ended early; halt() then says why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "faults/sim/network.h"
#include "reducer/base/dtype.h"
#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

// What each rank announces about a collective before its payload moves.
struct Header {
  Op op = Op::kAllReduceSum;
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kNative;
  bool verify = false;
  int root = 0;
  int bucket = kNone;
  std::int64_t pass = kNone;
  std::int64_t sequence = 0;
  std::uint64_t count = 0;
  std::int64_t reducer_id = kNone;

  bool operator==(const Header&) const = default;
};

struct Halt {
  enum class Cause : std::uint8_t {
    kNone,
    kClosed,
    kReset,
    kTimeout,
    kInterrupted,
    kOtherHeader,   // `theirs` is the peer's header
    kWrongMessage,  // an unexpected message: the peer runs another collective
  };
  Cause cause = Cause::kNone;
  int peer = kNone;
  Header theirs;
};

// How long the exchange waits for one message, and the counter of received messages.
struct Patience {
  simulation::Scheduler& scheduler;
  Duration timeout;
  std::uint64_t& received;

  Duration until() const {
    const Duration now = scheduler.now();
    return timeout > Duration::max() - now ? Duration::max() : now + timeout;
  }
};

// One collective of one rank. It sends and receives on behalf of the rank until the first failure.
class Exchange {
 public:
  Exchange(Mesh& mesh, int rank, std::int64_t sequence, const Patience& patience)
      : mesh_(mesh), rank_(rank), sequence_(sequence), patience_(patience) {}

  int rank() const { return rank_; }
  int size() const { return mesh_.size(); }
  int left() const { return rank_ == 0 ? size() - 1 : rank_ - 1; }  // the ring sends to this rank
  int right() const { return rank_ == size() - 1 ? 0 : rank_ + 1; }
  const Halt& halt() const { return halt_; }
  void stop(Halt::Cause cause, int peer) { halt_ = Halt{cause, peer, {}}; }

  bool agree(const Header& mine);
  // `part` numbers the messages of one direction of one link within the collective, from 1.
  bool send(int to, std::uint32_t part, std::span<const std::byte> bytes);
  bool receive(int from, std::uint32_t part, std::span<std::byte> bytes);
  bool receive_and_sum(int from, std::uint32_t part, DType dtype, std::span<std::byte> bytes);

 private:
  Message* take(int from, std::uint32_t part, std::size_t bytes);
  void note(Trouble trouble, int peer);
  bool stop(Trouble trouble, int peer) {
    if (trouble != Trouble::kNone) [[unlikely]]
      note(trouble, peer);
    return trouble == Trouble::kNone;
  }

  Mesh& mesh_;
  int rank_;
  std::int64_t sequence_;
  Patience patience_;
  Halt halt_;
};

bool ring_all_reduce(Exchange& exchange, DType dtype, std::span<std::byte> data,
                     std::size_t max_segment_bytes);
bool bcube_all_reduce(Exchange& exchange, DType dtype, std::span<std::byte> data);
bool rank_ordered_all_reduce(Exchange& exchange, DType dtype, std::span<std::byte> data);
bool broadcast(Exchange& exchange, int root, std::span<std::byte> data);
bool all_gather(Exchange& exchange, std::span<const std::byte> mine, std::span<std::byte> gathered);

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
