// Turns the calls that a loaded library makes of functions of its own to other functions.
//
// The wheels of NCCL contain the CUDA runtime: NCCL's code calls cudaMalloc and the like by near
// calls, which no loader can interpose. find_calls() finds these calls in NCCL's machine code, and
// redirect() writes another destination into each. The runtime's own code is neither called by NCCL
// any more nor changed: its calls among itself stay as they are.
//
// Threads: one, before any other uses the library. Failure: kInvalidArgument, in one line; the
// library is then unchanged, or must not be used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "faults/played_gpu/symbols.h"
#include "reducer/base/status.h"

namespace lockstep::played {

struct Call {
  std::uint64_t address = 0;  // of the instruction, from the library's load address
  std::string callee;
};

// The near calls and jumps to local functions whose name begins with `prefix` and a capital letter,
// from code outside of the range in which most of these functions lie.
Result<std::vector<Call>> find_calls(const Symbols& symbols, const std::byte* load_address,
                                     const std::string& prefix);

// `destination` returns where calls of that function go. Returns how many functions are called.
Result<std::size_t> redirect(std::byte* load_address, const std::vector<Call>& calls,
                             const std::function<const void*(const std::string&)>& destination);

}  // namespace lockstep::played
