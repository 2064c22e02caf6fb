// The part of an exported script (python_script.h) that is the same in every script: it trains the
// data above it with DistributedDataParallel and compares the gradients. Internal to report/.
#pragma once

namespace lockstep::properties {

extern const char* const kPythonImports;
extern const char* const kPythonRunner;

}  // namespace lockstep::properties
