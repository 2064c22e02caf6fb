// The subject `torch`: PyTorch's reducer. Its ranks are processes of another program,
// lockstep-torch (properties/subject/torch), so that this program does not link libtorch.
//
// Threads: one caller. Failure: torch_subject() says in one line why the subject is not available.
#pragma once

#include <filesystem>

#include "properties/subject/subject.h"

namespace lockstep::properties {

// What the program must answer to `lockstep-torch --probe`, before the version.
constexpr const char* kTorchGreeting = "lockstep-torch 1, libtorch ";

// Searches for the program beside this one, or in `folder`.
Result<Subject> torch_subject();
Result<Subject> torch_subject(const std::filesystem::path& folder);

// Returns what cases may require of the subject.
Capabilities torch_capabilities();

}  // namespace lockstep::properties
