// python_script: a case as one Python script that trains it with plain PyTorch (torch.distributed,
// DistributedDataParallel, Gloo), one spawned process a rank, and compares the gradients with what
// the profile `lockstep` of the contract expects. It needs nothing else of ours: the program, the
// constants of its uses and what is expected are data in it.
//
// Bits: every element is compared exactly, where the model gets the same bits with the buckets that
// PyTorch 1.13 makes: at one and two ranks always. Elsewhere a difference up to some roundings is
// let pass, and the elements that have one are counted. The script says which of the two it is.
//
// Threads: any. Failure: kInvalidArgument with one line that names what a script has no means for,
// or what is too large to be read by a person.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "properties/case/case.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

constexpr std::uint64_t kMaxScriptNumbers = 200'000;  // in constants and expected gradients

// `about`: the case file's free text, or empty.
Result<std::string> python_script(const Case& given, std::string_view about = {});

}  // namespace lockstep::properties
