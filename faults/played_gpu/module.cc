#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "faults/played_gpu/load.h"
#include "faults/played_gpu/played_gpu.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT uint32_t lockstep_played_version(void) { return LOCKSTEP_PLAYED_VERSION; }

EXPORT const char* lockstep_played_load(const char* library) {
  Dl_info self{};
  std::string folder;
  if (::dladdr(reinterpret_cast<void*>(lockstep_played_load), &self) != 0)
    folder = std::filesystem::path(self.dli_fname).parent_path().string();
  const lockstep::Status status = lockstep::played::load(library, folder);
  if (status.ok()) return nullptr;
  return (new std::string(status.failure().detail))->c_str();  // for the rest of the process
}
