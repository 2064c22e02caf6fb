#include "faults/reducer_state.h"

namespace lockstep::faults {

const char* name_of(ReducerState state) {
  switch (state) {
    case ReducerState::kIdle: return "idle";
    case ReducerState::kArmed: return "armed";
    case ReducerState::kReducing: return "reducing";
    case ReducerState::kLaunched: return "launched";
    case ReducerState::kFinalizing: return "finalizing";
    case ReducerState::kRebuilding: return "rebuilding";
    case ReducerState::kJoining: return "joining";
    case ReducerState::kResetting: return "resetting";
    case ReducerState::kUnknown: break;
  }
  return "unknown";
}

}  // namespace lockstep::faults
