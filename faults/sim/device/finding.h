// Finding: an unordered use of device memory, a use of memory that did not exist, or memory that
// was not needed; with both accesses where there are two. Findings are collected and end nothing;
// the test or the oracle decides what they mean. They name memory by label and offset, never by
// address, so that the same case gives the same text.
#pragma once

#include <cstdint>
#include <string>

#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

enum class FindingKind : std::uint8_t {
  kRace,   // two accesses conflict, and neither happens before the other
  kFreed,  // an operation was submitted, or the host accessed memory, after its release
  // The access is outside of any memory of the device; the operation was not executed.
  kForeign,
  // A host thread took pinned memory, and gave back next what was as large. `later` has the thread,
  // and both sizes in the place of the memory.
  kNeedless,
};

// One access, such as "stream 1 #4 unpack_bucket reads bucket 0 [0, 64)".
struct Place {
  std::string who;             // "stream 1", "host thread rank 0"
  std::uint64_t sequence = 0;  // the number of the access on that line
  std::string operation;
  bool is_write = false;
  std::string memory;  // label, or number of the allocation, and range of bytes in it

  std::string to_string() const {
    return who + " #" + std::to_string(sequence) + " " + operation +
           (is_write ? " writes " : " reads ") + memory;
  }
};

struct Finding {
  FindingKind kind = FindingKind::kRace;
  Place later;  // in the order of submission
  // For a race, the other access; for kFreed, the release; otherwise empty.
  Place earlier;

  std::string to_string() const {
    switch (kind) {
      case FindingKind::kRace:
        return "race: " + earlier.to_string() + ", and in no order with it " + later.to_string();
      case FindingKind::kFreed:
        return "freed memory: after " + earlier.to_string() + ", " + later.to_string();
      case FindingKind::kForeign:
        return "foreign memory: " + later.to_string();
      case FindingKind::kNeedless:
        return "needless memory: " + later.who + " takes " + later.memory;
    }
    return {};
  }
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
