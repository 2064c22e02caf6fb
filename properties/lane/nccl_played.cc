#include "properties/lane/nccl_played.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "faults/played_gpu/played_gpu.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlayed = "LOCKSTEP_NCCL_PLAYED";
constexpr const char* kLibrary = "lib/libnccl.so.2";

Status cannot_play(std::string what) { return Status(Code::kInvalidArgument, std::move(what)); }

fs::path cache() {
  const char* const named = std::getenv("LOCKSTEP_NCCL_CACHE");
  return named != nullptr && *named != '\0' ? fs::path(named) : fs::path(".cache/nccl");
}

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

// "2.28.9" comes before "2.28.10".
std::array<int, 3> numbers_of(const std::string& version) {
  std::array<int, 3> numbers{};
  (void)std::sscanf(version.c_str(), "%d.%d.%d", &numbers[0], &numbers[1], &numbers[2]);
  return numbers;
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

std::vector<std::string> fetched_nccls() {
  std::vector<std::string> versions;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(cache(), error)) {
    std::error_code ignored;
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(".") && fs::exists(entry.path() / kLibrary, ignored))
      versions.push_back(name);
  }
  std::sort(versions.begin(), versions.end(), [](const std::string& a, const std::string& b) {
    return numbers_of(a) < numbers_of(b);
  });
  return versions;
}

Result<std::string> find_nccl(const std::string& version_or_file) {
  std::error_code ignored;
  if (version_or_file.find('/') != std::string::npos) {
    if (fs::is_regular_file(version_or_file, ignored)) return version_or_file;
    return failed(cannot_play(fmt::format("--nccl: there is no file {}", version_or_file)));
  }
  const fs::path file = cache() / version_or_file / kLibrary;
  if (fs::exists(file, ignored)) return fs::absolute(file).string();
  const std::vector<std::string> there = fetched_nccls();
  return failed(cannot_play(fmt::format(
      "--nccl: NCCL {} is not in {} ({}); fetch it with ci/nccl fetch {}, name the folder with "
      "LOCKSTEP_NCCL_CACHE, or give a file",
      version_or_file, cache().string(),
      there.empty() ? "nothing is there" : fmt::format("there are {}", fmt::join(there, ", ")),
      version_or_file)));
}

Status load_played_nccl(const std::string& library) {
  const std::string file = played_gpu();
  void* const module = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr)
    return cannot_play(
        fmt::format("the played GPU cannot be loaded ({}): build it (ninja "
                    "lockstep_played_gpu)",
                    ::dlerror()));
  const auto version =
      reinterpret_cast<LockstepPlayedVersion>(::dlsym(module, "lockstep_played_version"));
  const auto load = reinterpret_cast<LockstepPlayedLoad>(::dlsym(module, "lockstep_played_load"));
  if (version == nullptr || load == nullptr || version() != LOCKSTEP_PLAYED_VERSION)
    return cannot_play(
        fmt::format("{} is of another build: build it (ninja lockstep_played_gpu)", file));
  const char* const why = load(library.c_str());
  return why == nullptr ? Status() : cannot_play(why);
}

}  // namespace lockstep::properties
