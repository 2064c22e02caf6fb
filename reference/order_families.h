// Families of orders of addition: what the collectives of other libraries do, as pure functions of
// the ranks and the elements. reference/atlas.h says which library uses which of them, and when.
// ORDERS.md shows each with an example. Any thread; nothing fails.
//
// Trees: one run, every element is added in the same order.
//   chain       x0+(x1+(x2+...)).
//   doubling    Recursive doubling. The ranks beyond the power of two are folded first: of 2^k + r
//               ranks, 0..2r-1 are added in pairs. Then neighbours, then neighbours of those.
//   halving     Recursive halving: the same fold, then the farthest pairs first.
//   knomial     Each rank adds the subtrees of the ranks at distance 1, 2, ..., radix-1 above it,
//               then those at radix times these distances, as far as its number is a multiple.
//   kary        Rank p adds the subtrees of the ranks p*k+1 ... p*k+k, in this order.
//   fanout      Each level of the tree is filled before the next, and is dealt out like cards: the
//               children of 0 are 1..k; those of a rank r of a level with n ranks r+n, r+2n, ...
// Rings: one run a chunk.
//   ring        In chunk c the running sum begins at rank c+start, goes to the next higher rank
//               (kUp) or lower rank (kDown), around, and each rank on the way is added to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/order.h"

namespace lockstep::reference {

std::vector<OrderRun> chain(std::uint32_t ranks, std::uint64_t elements);
std::vector<OrderRun> doubling(std::uint32_t ranks, std::uint64_t elements);
std::vector<OrderRun> halving(std::uint32_t ranks, std::uint64_t elements);
std::vector<OrderRun> knomial(std::uint32_t ranks, std::uint64_t elements, std::uint32_t radix);
std::vector<OrderRun> kary(std::uint32_t ranks, std::uint64_t elements, std::uint32_t children);
std::vector<OrderRun> fanout(std::uint32_t ranks, std::uint64_t elements, std::uint32_t children);

// How a buffer is cut into one chunk a rank.
enum class Chunks : std::uint8_t {
  kFirstLonger,  // n / ranks each, the first n % ranks of them one element longer
  kLastLonger,   // n / ranks each, and the last one has the rest
  kRoundedUp,    // n / ranks rounded up; the last ones may be short or empty
  kAboveGrain,   // the same, but the next larger multiple of the grain
};
enum class Direction : std::uint8_t { kUp, kDown };

struct Ring {
  Direction direction = Direction::kUp;
  std::uint32_t start = 0;  // of the running sum of chunk 0
  Chunks chunks = Chunks::kFirstLonger;
  std::uint64_t grain = 1;  // elements, of kAboveGrain
};
std::vector<OrderRun> ring(std::uint32_t ranks, std::uint64_t elements, Ring shape);

// The buffer is cut into pieces of `piece` elements, of which the first one is short if they do not
// come out even; `large` orders those of more than `border` elements, and `small` the others.
std::vector<OrderRun> in_pieces(std::uint64_t elements, std::uint64_t piece, std::uint64_t border,
                                const OrderRun& small, const OrderRun& large);

// "(0+(1+3))+2": of two summands the one with the lowest rank stands first.
std::string text_of(const OrderRun& run, std::uint32_t ranks);

// Equal texts. A run's additions may be listed in several orders that come to the same.
bool is_same_order(const OrderRun& a, const OrderRun& b, std::uint32_t ranks);

}  // namespace lockstep::reference
