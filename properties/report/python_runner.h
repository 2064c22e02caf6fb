// The parts of an exported script (python_script.h) that are the same in every script: imports, the
// module that is trained (properties/subject/python/lockstep/model.py), and what trains it with
// DistributedDataParallel and compares the gradients. Internal to report/.
#pragma once

namespace lockstep::properties {

extern const char* const kPythonImports;
extern const char* const kPythonModel;  // CMake makes it of the file
extern const char* const kPythonRunner;

}  // namespace lockstep::properties
