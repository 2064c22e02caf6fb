#include "properties/lane/lane.h"

#include <iterator>

namespace lockstep::properties {

const char* name_of(LaneKind kind) {
  static constexpr const char* kNames[] = {"sim", "gloo", "nccl", "hosts"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(LaneKind::kHosts) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace lockstep::properties
