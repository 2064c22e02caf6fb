// The functions of NCCL that the table of nccl_api.h has, by name, and since when NCCL has them.
//
// Threads: any.
#pragma once

#include <span>

#include "reducer/base/build_namespace.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct NcclFunctionName {
  const char* name;
  int since;         // The first version that has it, as ncclGetVersion returns it.
  bool is_required;  // load_nccl() refuses a library without it.
};

// In the order of NCCL's header.
std::span<const NcclFunctionName> nccl_functions();

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
