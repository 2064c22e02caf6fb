// The orders of addition that have a name: the families of reference/order_families.h with their
// parameters, and those that the contract declares. Pure functions; any thread; nothing fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/order.h"

namespace lockstep::properties {

struct NamedOrder {
  std::string name;  // "ring up from c+1"
  std::vector<reference::OrderRun> runs;
};

// Simple ones first. Several may be the same for these ranks and elements. `nccl_chunk_bytes` is a
// multiple of 4096.
std::vector<NamedOrder> named_orders(std::uint32_t ranks, std::uint64_t elements,
                                     std::uint64_t element_bytes,
                                     std::uint64_t nccl_chunk_bytes = reference::kNcclChunkBytes);

// "((0+1)+2)+3", or a part of the buffer at a time: "[0, 3) 0+(1+2), [3, 5) ...".
std::string text_of(const std::vector<reference::OrderRun>& runs, std::uint32_t ranks);

}  // namespace lockstep::properties
