// NcclHeader: what a rank says of the collective that it is about to run, as all ranks exchange it
// before the payload (F6). NCCL compares nothing: of ranks that differ it mixes up the data, or
// hangs.
//
// Threads: values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "reducer/comm/process_group.h"

namespace lockstep::inline LOCKSTEP_NS {

struct NcclHeader {
  std::uint32_t magic = 0x4c534e31;  // "LSN1"
  std::uint8_t op = 0;
  std::uint8_t dtype = 0;
  std::uint8_t reduction = 0;
  std::uint8_t verify = 0;
  std::int32_t root = 0;
  std::int32_t bucket = kNone;
  std::uint64_t count = 0;
  std::int64_t pass = kNone;
  std::int64_t sequence = 0;
  std::int64_t source = kNone;
  bool operator==(const NcclHeader&) const = default;
};
constexpr std::size_t kNcclHeaderBytes = 48;
static_assert(sizeof(NcclHeader) == kNcclHeaderBytes);
static_assert(std::has_unique_object_representations_v<NcclHeader>);

NcclHeader nccl_header_of(const Collective& collective, std::int64_t sequence);

// "all_reduce of 8 float32 (bucket 3, pass 1, sequence 7)".
std::string describe(const NcclHeader& header);

// Of the headers of all ranks, in their order: Ok when they are equal, otherwise kMismatch with
// both sides. The suspect is of the fewer, or of the others than `rank` where there are as many.
Status compare_headers(std::span<const NcclHeader> headers, int rank);

}  // namespace lockstep::inline LOCKSTEP_NS
