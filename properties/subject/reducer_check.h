// What does not show in the results of the production reducer: its layout as an object that is
// saved (B3), the memory that it has between two passes (F5), and the padding of what it sends
// (S1).
//
// Threads: the one that trains, outside of backward; SparsePadding says which.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reducer/autograd/parameter.h"
#include "reducer/bucket/layout.h"
#include "reducer/comm/process_group.h"
#include "reference/program.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// The layout of a reducer, and the parameters that it counts.
struct LaidOut {
  const Layout& layout;
  const std::vector<ParameterInfo>& parameters;
};

// Returns what is wrong with a layout that was made with these limits, or an empty text. Each
// bucket must be of the device of its members, the hash must be that of the contract, and the
// layout must load as it was saved. A layout that was loaded may have any limits.
std::string flaw_of_layout(const LaidOut& laid_out, const std::vector<std::uint64_t>& limits,
                           bool has_any_limits);

// Returns the most memory, in bytes, that the program's reducers and gradients may have when a
// synced pass is complete on every one of them: of gradients that are no bucket views, of buckets,
// of a chunk of buffers, and of what built-in hooks keep. Parameters have the indices of the
// program, and the names p0, p1, ...
std::uint64_t most_memory(const std::vector<LaidOut>& reducers,
                          const std::vector<Ref<Parameter>>& parameters,
                          const std::vector<Ref<Buffer>>& buffers,
                          const reference::Program& program);

// Returns what is wrong with the padding of a bucket of a dense dtype that a collective sums, or an
// empty text: where no member lies, there are zeros (B3).
std::string flaw_of_padding(const LaidOut& reducer, const Collective& collective);

// Looks at the all-gathers of one reducer's sparse gradients. The values of a sparse gradient
// follow the numbers of its rows. Where other ranks have more rows, padding stands behind its own:
// negative numbers, and zeros (S1). Threads: the one that starts the collective; a reducer starts
// them one at a time.
class SparsePadding {
 public:
  // Returns what is wrong with the collective, or an empty text.
  std::string look_at(const Collective& collective);

 private:
  std::vector<std::int64_t> rows_;  // the numbers that were sent last
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
