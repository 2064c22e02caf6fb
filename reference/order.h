// Order: in which order the contributions of the ranks to one element are added (G3), as data. An
// order is declared for a whole bucket: neighbouring elements share their additions, so that it is
// a short list of runs. Pure functions; any thread; nothing fails.
//
// rank_order  ((x0+x1)+x2)+... for every element.
// gloo_ring   The bucket is cut into one chunk a rank; each travels once around the ring, against
//             the direction of the ranks. Chunk c starts with rank c-1 and ends with rank c.
// gloo_bcube  Ranks are numbers with mixed bases: the factors 2 of their count, then what is left
//             over. Digit by digit, lowest first, groups that differ in that digit alone halve (or
//             split evenly) what they hold; the owner of a part adds the others to its own, in
//             ascending order.
// nccl_ring   NCCL 2.22 and newer, the ring algorithm with one channel, all ranks in the order of
//             their numbers: the bucket is cut into loops of one chunk a rank, the last loop evenly
//             but for whole 16 bytes. Chunk c starts with rank c+1, goes once around with the
//             ranks, and ends with rank c. The chunk is 2 MiB with the Simple protocol and NCCL's
//             own buffers. 2.20 and 2.21 cut the last loop into multiples of 4096 bytes; 2.18 and
//             2.19 into multiples of 8 bytes a thread, where a small bucket has fewer threads. That
//             is for the Simple protocol, and NCCL_NTHREADS=512.
// Which of two summands comes first does not matter, since addition is commutative but for a NaN's
// payload.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "reference/contract.h"
#include "reference/program.h"

namespace lockstep::reference {

struct Addition {  // x[into] = x[into] + x[from]
  std::uint8_t into = 0;
  std::uint8_t from = 0;
};

// Elements from the end of the run before up to `end`. There are ranks - 1 additions, in order, on
// an array x of the ranks' contributions; then the sum is x[result].
struct OrderRun {
  std::uint64_t end = 0;
  std::uint8_t result = 0;
  std::array<Addition, kMaxWorld - 1> additions{};
};

// One plan of a bucket of `elements` elements among `ranks` ranks (1..kMaxWorld); none has an empty
// run, and the last one ends at `elements`.
std::vector<OrderRun> rank_order(std::uint32_t ranks, std::uint64_t elements);
std::vector<OrderRun> gloo_ring(std::uint32_t ranks, std::uint64_t elements,
                                std::uint64_t element_bytes, std::uint64_t max_segment_bytes);
std::vector<OrderRun> gloo_bcube(std::uint32_t ranks, std::uint64_t elements);

// `element_bytes` divides 16; a chunk is a multiple of 16 bytes (of 4096 bytes before 2.22).
constexpr std::uint64_t kNcclChunkBytes = std::uint64_t{2} << 20;
std::vector<OrderRun> nccl_ring(std::uint32_t ranks, std::uint64_t elements,
                                std::uint64_t element_bytes,
                                std::uint64_t chunk_bytes = kNcclChunkBytes,
                                NcclRing ring = NcclRing::kSince222);

}  // namespace lockstep::reference
