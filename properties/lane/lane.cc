#include "properties/lane/lane.h"

namespace lockstep::properties {

const char* name_of(LaneKind kind) {
  switch (kind) {
    case LaneKind::kSim:
      return "sim";
    case LaneKind::kGloo:
      return "gloo";
    case LaneKind::kNccl:
      return "nccl";
    case LaneKind::kHosts:
      return "hosts";
  }
  return "unknown";
}

}  // namespace lockstep::properties
