#include "faults/reducer_state.h"

#include <utility>

namespace lockstep::faults {

constexpr std::pair<ReducerState, const char*> kStateNames[] = {
    {ReducerState::kIdle, "idle"},
    {ReducerState::kArmed, "armed"},
    {ReducerState::kReducing, "reducing"},
    {ReducerState::kLaunched, "launched"},
    {ReducerState::kFinalizing, "finalizing"},
    {ReducerState::kRebuilding, "rebuilding"},
    {ReducerState::kJoining, "joining"},
    {ReducerState::kResetting, "resetting"},
};

const char* name_of(ReducerState state) {
  for (const auto& [each, words] : kStateNames)
    if (each == state) return words;
  return "unknown";
}

}  // namespace lockstep::faults
