// python_script: exports a case as one Python script that trains it with plain PyTorch
// (torch.distributed, DistributedDataParallel, Gloo), with one spawned process per rank, and
// compares the gradients with what the profile `lockstep` of the contract expects. The script needs
// nothing else of this project: it contains the program, the constants of its uses and the expected
// gradients as data.
//
// Bits: the script compares every element exactly if the model computes the same bits with the
// buckets that PyTorch 1.13 creates; at one and two ranks it always does. Otherwise the script
// accepts a difference of up to some roundings, and counts the elements that have one. The script
// says which of the two comparisons it makes.
//
// Options that only newer versions have are in the script of a case that has them; an older version
// says in one line that it lacks them.
//
// Threads: any. Failure: kInvalidArgument with one line that names what a script cannot express, or
// what is too large for a person to read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "properties/case/case.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

// The most numbers in a script: constants and expected gradients together.
constexpr std::uint64_t kMaxScriptNumbers = 200'000;

// `about`: the case file's free text, or empty.
Result<std::string> python_script(const Case& given, std::string_view about = {});

}  // namespace lockstep::properties
