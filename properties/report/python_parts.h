// The parts of an exported script (python_script.h) that are the same in every script. CMake makes
// them of files: imports (script_imports.py), the module that is trained
// (properties/subject/python/lockstep/model.py), and what trains it with DistributedDataParallel
// and compares the gradients (script_runner.py). Internal to report/.
#pragma once

namespace lockstep::properties {

extern const char* const kPythonImports;
extern const char* const kPythonModel;
extern const char* const kPythonRunner;

}  // namespace lockstep::properties
