// Collectives whose every transfer is checked by its receiver (F3), over what a group lends them:
// one exchange of frames between all ranks, straight from sender to receiver, so that a frame that
// is not right names its sender. One source for all groups.
//
//   all-reduce  as kRankOrdered says: every rank gets its share from all, adds in the order of the
//               ranks, and sends the sum to all. Two exchanges.
//   broadcast   the root gives each rank its share, which hands it on to all. Two exchanges.
//   all-gather  everyone sends what it has to all. One exchange.
//
// Nothing that was received is used before its seal has been compared, and results are copied into
// the caller's memory only when all of an exchange was right; after a flaw that memory holds no
// result (an own share may have been written).
//
// Threads: as the exchange. Memory: two buffers as large as the data, the padding and the seals,
// kept from one collective to the next.
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

  // Frame r of `out` goes to rank r, and frame r of `in` is what rank r sent here; of the own one
  // nothing is asked. False: the exchange ended before that, and its group knows why. `out` may be
  // changed.
  virtual bool exchange(std::byte* out, std::byte* in, std::size_t frame_bytes) = 0;

  // ((x0 + x1) + x2) + ... of the ranks' parts of `bytes` bytes, `stride` bytes apart.
  virtual void add_in_order(const Collective& collective, const std::byte* parts,
                            std::size_t stride, std::size_t bytes, std::byte* sum) = 0;
};

// Which collective it is, on which group: equal on all ranks, and never the same again.
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

// Runs a collective that has elements, in a group of several ranks that have agreed on it. False:
// the exchange ended, or `flaw` has a sender.
bool run_verified(const Collective& collective, const CollectiveId& id, FrameExchange& exchange,
                  FrameMemory& memory, Flaw& flaw);

// The flaw as a failure of the rank that found it; all else about the collective is for the caller.
Failure corrupted(const Flaw& flaw, int rank);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
