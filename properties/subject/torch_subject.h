// The subject `torch`: PyTorch's reducer. Its ranks are processes of another program,
// lockstep-torch (properties/subject/torch), so that this program does not link libtorch.
//
// Threads: one caller, in a process without other threads (it forks). Failure: torch_subject() says
// in one line why the subject is not available.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "properties/subject/subject.h"

namespace lockstep::properties {

// What the program must answer to `lockstep-torch --probe`, before the version.
constexpr const char* kTorchGreeting = "lockstep-torch 2, libtorch ";

// Where the programs of other versions than the system's lie, beside `lockstep`: VERSION/ has the
// program that `ci/torch --version VERSION` built, and with/PATH/ the one of `ci/torch --with
// PATH`.
constexpr const char* kTorchVersions = "lockstep-torch.d";

// Returns the subject `torch` (`which` is empty), `torch:2.9.1` or `torch:FOLDER`. It searches for
// the program beside this one, or in `folder`.
Result<Subject> torch_subject(const std::string& which = {});
Result<Subject> torch_subject(const std::string& which, const std::filesystem::path& folder);

// Returns the versions that `ci/torch --version` has built for this program, or for one in
// `folder`, ascending.
std::vector<std::string> built_torch_versions();
std::vector<std::string> built_torch_versions(const std::filesystem::path& folder);

// Returns the folder with include/ and lib/ that a user means by `given`: that folder itself, its
// folder torch (of a source tree, or of site-packages), or the folder two above it (what
// torch.utils.cmake_prefix_path says). Returns an empty path if none of them has libtorch.
std::filesystem::path torch_root(const std::filesystem::path& given);

// Returns what cases may require of the subject, of any version.
Capabilities torch_capabilities();
// Returns what cases may require of a version, which has options that older ones lack.
Capabilities torch_capabilities(const torch_model::Version& version);

// Holds a subject to Lockstep's contract instead of its own.
void hold_to_lockstep(Subject& subject);

}  // namespace lockstep::properties
