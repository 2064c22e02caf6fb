// Verified collectives: each receiver checks every transfer (F3). They run over a primitive of the
// group, one exchange of frames between all ranks that goes straight from sender to receiver, so a
// frame that is wrong identifies its sender. All groups share this code.
//
//   all-reduce  works as kRankOrdered says: every rank gets its piece from all ranks, adds in rank
//               order, and sends the sum to all. It takes two exchanges.
//   broadcast   the root gives each rank a piece, which that rank passes on to all. It takes two
//               exchanges.
//   all-gather  every rank sends its contribution to all. It takes one exchange.
//
// Nothing that was received is used before its seal has been compared. Results are copied into the
// caller's memory only when a whole exchange was right. After a flaw that memory holds no result (a
// rank's own piece may have been written).
//
// Threads: as the exchange.
// Memory: two buffers as large as the data, the padding and the seals, which later collectives use
// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class FrameExchange {
 public:
  virtual ~FrameExchange() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sends frame r of `out` to rank r, and fills frame r of `in` with what rank r sent here. The
  // rank's own frame need not be filled. False means that the exchange ended early, and the group
  // knows why. The call may change `out`.
  virtual bool exchange(std::byte* out, std::byte* in, std::size_t frame_bytes) = 0;

  // Computes ((x0 + x1) + x2) + ... of the ranks' pieces, which have `bytes` bytes and are `stride`
  // bytes apart.
  virtual void add_in_order(const Collective& collective, const std::byte* parts,
                            std::size_t stride, std::size_t bytes, std::byte* sum) = 0;
};

// Identifies a collective and its group. It is equal on all ranks and never used again.
struct CollectiveId {
  std::uint64_t group = 0;
  std::int64_t sequence = 0;
};

struct FrameMemory {
  std::vector<std::byte> out;
  std::vector<std::byte> in;
};

struct Flaw {
  int sender = kNone;
  std::string what;
};

// Runs a collective that has elements, in a group of several ranks that have agreed on it. False
// means that the exchange ended, or that `flaw` names a sender.
bool run_verified(const Collective& collective, const CollectiveId& id, FrameExchange& exchange,
                  FrameMemory& memory, Flaw& flaw);

// Makes a failure of the flaw for the rank that found it. The caller fills in the rest about the
// collective.
Failure corrupted(const Flaw& flaw, int rank);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
