// The subject `python:FILE:FUNCTION`: a wrapper of a torch.nn.Module, as people write them in
// Python. Its ranks are processes of a Python that has torch (properties/subject/python), so that
// this program links neither Python nor libtorch.
//
// Threads: one caller, in a process without other threads (it forks). Failure: python_subject()
// says in one line what is wrong with the file, the function or the Python.
#pragma once

#include <filesystem>
#include <string>

#include "properties/subject/subject.h"

namespace lockstep::properties {

// Returns the subject that `which` names, FILE:FUNCTION. The interpreter is LOCKSTEP_PYTHON, or
// python3. A process of its own loads the file, and says what the function declares.
Result<Subject> python_subject(const std::string& which);

// Returns what a wrapper may declare that it can do: what the subject torch can, less what no
// wrapper is asked for.
Capabilities python_capabilities();

// Returns the program that Python runs for a rank, or an empty path if it is not installed beside
// the program `self`: in the build folder, in share/ of a prefix, or in a Python package.
std::filesystem::path python_ranks(const std::filesystem::path& self);

// Which Python runs the ranks, and which torch it has: "python3 (/usr/bin/python3), Python 3.11.2,
// torch 1.13.1". Failure: one line that says what is missing.
Result<std::string> describe_python();

}  // namespace lockstep::properties
