// The folder into which ci/nccl fetches versions of NCCL: VERSION/lib/libnccl.so.2.
//
// Threads: any. Failure: kInvalidArgument, in one line that says what is there and what to do.
#pragma once

#include <string>
#include <vector>

#include "reducer/base/status.h"

namespace lockstep::properties {

// LOCKSTEP_NCCL_CACHE, or .cache/nccl.
std::string nccl_cache();

// The versions in that folder, ascending.
std::vector<std::string> nccl_versions_in(const std::string& cache);

// The library of a version there ("2.28.9"), or the file of that name, which has a slash in it.
Result<std::string> find_nccl(const std::string& version_or_file, const std::string& cache);

}  // namespace lockstep::properties
