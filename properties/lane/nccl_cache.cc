#include "properties/lane/nccl_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "properties/case/invalid.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "lib/libnccl.so.2";

// "2.28.9" comes before "2.28.10", and that before "2.28.10-local".
std::pair<std::array<int, 3>, std::string> order_of(const std::string& version) {
  std::array<int, 3> numbers{};
  (void)std::sscanf(version.c_str(), "%d.%d.%d", &numbers[0], &numbers[1], &numbers[2]);
  return {numbers, version};
}

}  // namespace

std::string nccl_cache() {
  const char* const named = std::getenv("LOCKSTEP_NCCL_CACHE");
  return named != nullptr && *named != '\0' ? named : ".cache/nccl";
}

std::vector<std::string> nccl_versions_in(const std::string& cache) {
  std::vector<std::string> versions;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(cache, error)) {
    std::error_code ignored;
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(".") && fs::exists(entry.path() / kLibrary, ignored))
      versions.push_back(name);
  }
  std::sort(versions.begin(), versions.end(),
            [](const std::string& a, const std::string& b) { return order_of(a) < order_of(b); });
  return versions;
}

Result<std::string> find_nccl(const std::string& version_or_file, const std::string& cache) {
  std::error_code ignored;
  if (version_or_file.find('/') != std::string::npos) {
    if (fs::is_regular_file(version_or_file, ignored)) return version_or_file;
    return failed(invalid(fmt::format("there is no file {}", version_or_file)));
  }
  const fs::path file = fs::path(cache) / version_or_file / kLibrary;
  if (fs::exists(file, ignored)) return fs::absolute(file).string();
  const std::vector<std::string> there = nccl_versions_in(cache);
  return failed(invalid(fmt::format(
      "NCCL {} is not in {} ({}); fetch it with ci/nccl fetch {}, name the folder with "
      "LOCKSTEP_NCCL_CACHE, or give a file with its path",
      version_or_file, cache,
      there.empty() ? "nothing is there" : fmt::format("there are {}", fmt::join(there, ", ")),
      version_or_file)));
}

}  // namespace lockstep::properties
