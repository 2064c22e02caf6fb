// The subject `torch`: PyTorch's reducer. Its ranks are processes of another program,
// lockstep-torch (properties/subject/torch), so that this one does not link libtorch. There is one
// lane for it, as it brings its own engine and its own process group.
//
// Threads: one caller. Failure: torch_subject() tells in one line why there is no such subject.
#pragma once

#include <filesystem>
#include <memory>

#include "properties/lane/lane.h"

namespace lockstep::properties {

// What the program has to answer to `lockstep-torch --probe`, before the version.
constexpr const char* kTorchGreeting = "lockstep-torch 1, libtorch ";

// Its program is looked for beside this one, or in `folder`.
Result<Subject> torch_subject();
Result<Subject> torch_subject(const std::filesystem::path& folder);

std::unique_ptr<Lane> make_torch_lane(const Subject& subject);

// What cases may ask of it.
Capabilities torch_capabilities();

}  // namespace lockstep::properties
