// The model: a slow, single-threaded reading of CONTRACT.md. It takes a Program and says what
// must come out. It depends on the standard library alone and shares nothing with `reducer/`. It
// keeps no state between calls, so that any thread may call it; it never fails.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/contract.h"
#include "reference/expectation.h"
#include "reference/program.h"

namespace lockstep::reference {

// From `before_step` on only `survivors` (original ranks) train, in a new group in which a rank's
// number is its position in the list. A rank that was not in the group before, because another
// process has taken its place, joins with nothing but its number; such ranks come last (F4). A rank
// keeps its original number where values and variants are concerned. Recovery undefines every
// gradient and clears usage; steps that were begun before it are expected as if nothing had gone
// wrong.
struct Recovery {
  std::uint32_t before_step = 0;
  std::vector<std::uint32_t> survivors;
};

// B2: in `step` the group laid out its buckets anew, following `parameters`: the first owners of
// all that are trained, in the order in which they got ready on its rank 0. Only a run can tell,
// and `rank` did. Those of several reducers stand one after the other.
struct ReadyOrder {
  std::uint32_t step = 0;
  std::vector<std::uint32_t> parameters;
  std::uint32_t rank = 0;
};

// `program` is normalized. After a step with an own error the model itself recovers, with all its
// survivors; `recoveries` adds those that faults brought about, ascending by before_step. Where
// `ready_orders` lacks one, the order of registration is taken.
Expectation run(const Program& program, const Contract& contract,
                const std::vector<Recovery>& recoveries = {},
                const std::vector<ReadyOrder>& ready_orders = {});

}  // namespace lockstep::reference
