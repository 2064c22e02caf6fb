// Which order of additions gives the bits of a sum that came out of ncclAllReduce? It tries NCCL's
// ring with the declared and with other sizes of a chunk, and the orders and mistakes that
// explain_bits() knows.
//
// A pure function; any thread; nothing fails.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "properties/compare/operation.h"

namespace lockstep::properties {

// One line: "NCCL's ring (2.22 and newer)", "NCCL's ring with chunks of 4 KiB", "no declared
// order".
std::string explain_sum(const PreparedOperation& operation, const std::vector<std::byte>& result);

}  // namespace lockstep::properties
