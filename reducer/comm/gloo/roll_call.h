// Roll call finds the rank that holds up a collective that makes no progress.
//
// A rank knows which peer it waits for itself, but that peer may be held up by another one. So when
// an operation is overdue, every rank sends its standing to all others, once. A rank whose
// operation is overdue then follows the chain (this rank waits for b, b waits for c) to the rank
// that waits for nobody, or that does not answer. A rank that has not entered the collective
// answers, too: its monitor does (mesh.h). A rank that none of several others answers suspects
// itself, as its own connections are the likeliest cause; the ranks then compare what they report
// (failure_board.h).
//
// Threads: values and a pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Standing is the message in which a rank says what it waits for.
struct Standing {
  static constexpr std::uint32_t kMagic = 0x4c535231;  // The bytes spell "LSR1".
  std::uint32_t magic = kMagic;
  std::uint32_t has_operation = 0;  // 1 if an operation was started and has not ended.
  std::int32_t waits_for = kNone;   // The peer that the oldest operation waits for.
  std::uint32_t check = 0;          // A checksum of the other fields.
  std::uint64_t started = 0;  // The number of operations that were started on these connections.

  void seal() { check = expected_check(); }
  bool is_sealed() const { return magic == kMagic && check == expected_check(); }
  std::uint32_t expected_check() const {
    return ~(magic + 3 * has_operation + 7 * static_cast<std::uint32_t>(waits_for) +
             11 * static_cast<std::uint32_t>(started));
  }
};
static_assert(sizeof(Standing) == 24 && std::has_unique_object_representations_v<Standing>);

using Standings = std::vector<std::optional<Standing>>;  // By rank; empty for ranks that sent none.

// The rank at which a chain of waits ends; kNone where the chain is a cycle.
struct ChainEnd {
  int rank = kNone;
  bool has_answered = false;
  bool has_operation = false;
  std::uint64_t started = 0;
  // None of two or more other ranks has answered `self`; `rank` is the one that it waits for.
  bool is_alone = false;
};

// Returns the end of the chain that begins with `self`, whose own standing must be present.
ChainEnd end_of_chain(const Standings& standings, int self);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
