// Where the cases and programs are that come with Lockstep: in a checkout, or in share/lockstep of
// what was installed. Threads: any. Failure: none; a folder that is nowhere stays what it is, and
// whoever reads it says so.
#pragma once

#include <string>

namespace lockstep::properties {

// Returns `folder` if it exists, or if it is none of properties/corpus and properties/exhaust.
// Otherwise returns the folder of that name beside this program, if there is one.
std::string kept_folder(const std::string& folder);

}  // namespace lockstep::properties
