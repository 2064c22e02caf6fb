// Contract: the numbers that a profile's layouts and orders of addition follow from. Those of
// Lockstep are CONTRACT.md's. Plain data; nothing here fails.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::reference {

enum class DType : std::uint8_t;
struct OrderRun;

// How NCCL's ring cuts what the last loop holds, by version (order.h).
enum class NcclRing : std::uint8_t { kSince222, kSince220, kUpTo219 };

// Where the sum of the ranks' gradients becomes the average, with one rounding.
enum class Scaling : std::uint8_t {
  kMultiplyBefore,  // each contribution by 1/N, rounded to the dtype (G2)
  kMultiplyAfter,   // the sum by 1/N
  kDivideBefore,    // each contribution by N
  kDivideAfter,     // the sum by N
  kNone,            // the gradient is the sum
};

// How somebody else's reducer sums, where it declares that instead of being held to G2 and G3.
struct DeclaredSums {
  // The order of additions of a parameter's gradient, which a collective of its own sums: one plan
  // for `elements` numbers of the dtype. An empty plan means that nobody knows it; the bits are
  // then not judged. Without a function the order is the contract's, over whole buckets.
  std::function<std::vector<OrderRun>(std::uint32_t ranks, std::uint64_t elements, DType dtype)>
      order;
  Scaling scaling = Scaling::kMultiplyBefore;
};

struct Contract {
  std::uint32_t alignment_bytes = 64;  // of every member of a bucket (B3); 0: none
  std::uint64_t max_segment_bytes = std::uint64_t{1024} * 1024;  // of the ring's transfers (G3)
  NcclRing nccl_ring = NcclRing::kSince222;                      // (G3)

  DeclaredSums sums;

  static Contract lockstep() { return {}; }
};

}  // namespace lockstep::reference
