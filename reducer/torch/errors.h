// Failures of Lockstep as exceptions of Python: lockstep.torch.LockstepError, a RuntimeError with
// the fields of the Failure. An exception that a hook throws passes through PyTorch's engine, and
// arrives unchanged where backward() was called.
//
// Threads: any, with and without Python's global lock (GIL).
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>

#include "reducer/base/status.h"

namespace lockstep::torch_adapter {

// Adds the type to the module.
void define_error(pybind11::module_& module);

[[noreturn]] void raise(const Status& status);
// Raises kInvalidArgument.
[[noreturn]] void refuse(const std::string& why);

inline void check(const Status& status) {
  if (!status.ok()) raise(status);
}

}  // namespace lockstep::torch_adapter
