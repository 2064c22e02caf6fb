// Libraries to compare: versions of NCCL by name, from the cache of ci/nccl, or files.
//
//   2.28.9            CACHE/2.28.9/lib/libnccl.so.2
//   build/libnccl.so  a file, where the text has a slash
//   mine=FILE         a file, with a name for the report
//
// A library may be named twice; the second one is "2.28.9 again".
//
// Threads: any; it reads the cache. Failure: one line that lists the versions that are there.
#pragma once

#include <string>
#include <vector>

#include "reducer/base/status.h"

namespace lockstep::properties {

struct Library {
  std::string name;  // differs from that of every other one
  std::string file;
};

Result<std::vector<Library>> find_libraries(const std::vector<std::string>& names,
                                            const std::string& cache);

}  // namespace lockstep::properties
