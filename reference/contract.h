// Contract: the numbers that a profile's layouts and orders of addition follow from. Those of
// Lockstep are CONTRACT.md's. Plain data; nothing here fails.
#pragma once

#include <cstdint>

namespace lockstep::reference {

// How NCCL's ring cuts what the last loop holds, by version (order.h).
enum class NcclRing : std::uint8_t { kSince222, kSince220, kUpTo219 };

struct Contract {
  std::uint32_t alignment_bytes = 64;  // of every member of a bucket (B3); 0: none
  std::uint64_t max_segment_bytes = std::uint64_t{1024} * 1024;  // of the ring's transfers (G3)
  NcclRing nccl_ring = NcclRing::kSince222;                      // (G3)
  // Without unused detection there is one bucket per dtype until buckets are rebuilt (B1).
  bool starts_without_limits = false;

  static Contract lockstep() { return {}; }
};

}  // namespace lockstep::reference
