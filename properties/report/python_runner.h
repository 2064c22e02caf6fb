// The part of an exported script (python_script.h) that is the same in all of them: it trains what
// the data above it says with DistributedDataParallel, and compares. Internal to report/.
#pragma once

namespace lockstep::properties {

extern const char* const kPythonImports;
extern const char* const kPythonRunner;

}  // namespace lockstep::properties
