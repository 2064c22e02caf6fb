#include "properties/process/system_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace lockstep::properties {

std::string advice_for(int error) {
  switch (error) {
    case EMFILE:
      return "raise the number of open files that a process may have (ulimit -n)";
    case ENFILE:
      return "raise the number of open files of this machine (fs.file-max)";
    case EAGAIN:
      return "raise the number of processes and threads of this user (ulimit -u) or of the "
             "container (its pids limit), or use fewer --jobs";
    case ENOMEM:
      return "give it more memory: raise the limit on the address space (ulimit -v) or that of "
             "the container, or use fewer --jobs";
    case ENOSPC:
    case EDQUOT:
    case EROFS:
    case EACCES:
    case ENOENT:
    case ENOTDIR:
      return "free some space, or name another folder with TMPDIR";
    default:
      return "see what this machine or its container forbids";
  }
}

Status refused_by_system(const std::string& what, int error) {
  return Status(Code::kInternal,
                fmt::format("{}: {}; {}", what, std::strerror(error), advice_for(error)));
}

}  // namespace lockstep::properties
