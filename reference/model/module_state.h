// ModuleState: values of parameters and buffers on one rank (S3). What they are is hashed and has
// no meaning (state.h): what matters is which rank has which. Pure functions; any thread; nothing
// fails.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "reference/model/setting.h"

namespace lockstep::reference {

// By tensor of state_tensors(): the bits of its elements. Ranks that hold the same bits may share
// them.
using ModuleState = std::vector<std::shared_ptr<const std::vector<std::uint64_t>>>;

// What a rank has before its reducer is made.
ModuleState initial_state(const Setting& setting, std::uint32_t rank);

// What a rank receives from the root of a broadcast.
ModuleState receive(const Setting& setting, ModuleState own, const ModuleState& root);
ModuleState receive_buffers(const Setting& setting, ModuleState own, const ModuleState& root);

// Each forward with gradients changes the buffers.
ModuleState change_buffers(const Setting& setting, std::uint32_t rank, const Step& step,
                           ModuleState state);

// After a synced step the values of parameters change, alike on all ranks.
ModuleState train_values(const Setting& setting, std::uint32_t step_key, ModuleState state);

std::vector<std::uint64_t> hashes_of(const ModuleState& state);

}  // namespace lockstep::reference
