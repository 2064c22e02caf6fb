#include "properties/lane/nccl_played.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "faults/played_gpu/played_gpu.h"
#include "properties/case/invalid.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlayed = "LOCKSTEP_NCCL_PLAYED";

// The build folder, and the folder of an installed program.
std::string played_gpu() {
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const fs::path& place : {folder / "faults/played_gpu", folder / "../faults/played_gpu",
                                folder / "../lib/lockstep/played"})
    if (fs::exists(place / LOCKSTEP_PLAYED_FILE, ignored))
      return (place / LOCKSTEP_PLAYED_FILE).string();
  return (folder / "faults/played_gpu" / LOCKSTEP_PLAYED_FILE).string();
}

}  // namespace

bool is_nccl_played() {
  const char* const text = std::getenv(kPlayed);
  return text != nullptr && std::strcmp(text, "1") == 0;
}

bool may_play_nccl() {
  const char* const text = std::getenv(kPlayed);
  return text == nullptr || std::strcmp(text, "0") != 0;
}

void play_nccl() { ::setenv(kPlayed, "1", 1); }

Status load_played_nccl(const std::string& library) {
  const std::string file = played_gpu();
  void* const module = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr)
    return invalid(
        fmt::format("the played GPU cannot be loaded ({}): build it (ninja "
                    "lockstep_played_gpu)",
                    ::dlerror()));
  const auto version =
      reinterpret_cast<LockstepPlayedVersion>(::dlsym(module, "lockstep_played_version"));
  const auto load = reinterpret_cast<LockstepPlayedLoad>(::dlsym(module, "lockstep_played_load"));
  if (version == nullptr || load == nullptr || version() != LOCKSTEP_PLAYED_VERSION)
    return invalid(
        fmt::format("{} is of another build: build it (ninja lockstep_played_gpu)", file));
  const char* const why = load(library.c_str());
  return why == nullptr ? Status() : invalid(why);
}

}  // namespace lockstep::properties
