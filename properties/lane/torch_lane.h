// The subject `torch`: PyTorch's reducer. Its ranks are processes of another program,
// lockstep-torch (properties/subject/torch), so that this program does not link libtorch. It has
// one lane, because it has its own engine and its own process group.
//
// Threads: one caller. Failure: torch_subject() says in one line why the subject is not available.
#pragma once

#include <filesystem>
#include <memory>

#include "properties/lane/lane.h"

namespace lockstep::properties {

// What the program must answer to `lockstep-torch --probe`, before the version.
constexpr const char* kTorchGreeting = "lockstep-torch 1, libtorch ";

// Searches for the program beside this one, or in `folder`.
Result<Subject> torch_subject();
Result<Subject> torch_subject(const std::filesystem::path& folder);

std::unique_ptr<Lane> make_torch_lane(const Subject& subject);

// Returns what cases may require of the subject.
Capabilities torch_capabilities();

}  // namespace lockstep::properties
