// CollectiveHeader describes the collective that a rank is about to run. Ranks exchange headers
// before the payload moves (contract F6). Transports that have more to agree on add fields of their
// own beside it.
//
// Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct CollectiveHeader {
  std::uint32_t magic = 0x4c534831;  // The bytes spell "LSH1".
  std::uint8_t op = 0;
  std::uint8_t dtype = 0;
  std::uint8_t reduction = 0;
  std::uint8_t verify = 0;
  std::int32_t root = 0;
  std::int32_t bucket = kNone;
  std::uint64_t count = 0;
  std::int64_t pass = kNone;
  std::int64_t sequence = 0;
  std::int64_t reducer_id = kNone;
  std::uint64_t factor_bits = 0;  // The bits of the factor, a double.
  bool operator==(const CollectiveHeader&) const = default;

  bool is_rank_ordered_sum() const;
};
static_assert(sizeof(CollectiveHeader) == 56);
static_assert(std::has_unique_object_representations_v<CollectiveHeader>);

CollectiveHeader header_of(const Collective& collective, std::int64_t sequence);

// Formats the header: "all_reduce of 8 float32 (bucket 3, pass 1, sequence 7)". `more` is appended
// inside the parentheses.
std::string describe(const CollectiveHeader& header, const std::string& more = {});

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
