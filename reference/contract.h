// Contract: the named policies of a contract profile, those that the model consults. Profile
// `lockstep` is CONTRACT.md as it stands. Plain data; nothing here fails.
#pragma once

#include <cstdint>

namespace lockstep::reference {

struct Contract {
  std::uint32_t alignment_bytes = 64;             // of every member of a bucket (B3)
  std::uint64_t max_segment_bytes = 1024 * 1024;  // of the ring's transfers (G3)

  static Contract lockstep();
};

}  // namespace lockstep::reference
