#include "properties/compare/library.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileOfVersion = "lib/libnccl.so.2";

std::vector<std::string> versions_in(const fs::path& cache) {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(cache, error)) {
    std::error_code ignored;
    if (fs::exists(entry.path() / kFileOfVersion, ignored))
      out.push_back(entry.path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<Library> find_library(const std::string& text, const std::string& cache) {
  const std::size_t equals = text.find('=');
  const std::string name = equals == std::string::npos ? text : text.substr(0, equals);
  const std::string file = equals == std::string::npos ? text : text.substr(equals + 1);
  std::error_code error;
  if (file.find('/') == std::string::npos) {
    const fs::path found = fs::path(cache) / file / kFileOfVersion;
    if (fs::exists(found, error)) return Library{name, found.string()};
    const std::vector<std::string> versions = versions_in(cache);
    return failed(Status(
        Code::kInvalidArgument,
        fmt::format("there is no NCCL '{}' in {}, which has {}: ci/nccl fetch {}, or give a file "
                    "with its path",
                    file, cache,
                    versions.empty() ? "none" : fmt::format("{}", fmt::join(versions, ", ")),
                    file)));
  }
  if (fs::is_regular_file(file, error)) return Library{name, file};
  return failed(Status(Code::kInvalidArgument, fmt::format("there is no library file '{}'", file)));
}

}  // namespace

Result<std::vector<Library>> find_libraries(const std::vector<std::string>& names,
                                            const std::string& cache) {
  if (names.size() < 2)
    return failed(Status(Code::kInvalidArgument,
                         "--versions needs two libraries or more, such as 2.28.9,2.30.7"));
  std::vector<Library> out;
  for (const std::string& text : names) {
    Result<Library> library = find_library(text, cache);
    if (!library) return failed(library.error());
    const std::string name = library->name;
    for (int count = 2;
         std::any_of(out.begin(), out.end(),
                     [&library](const Library& other) { return other.name == library->name; });
         ++count)
      library->name = count == 2 ? name + " again" : fmt::format("{} again ({})", name, count);
    out.push_back(std::move(*library));
  }
  return out;
}

}  // namespace lockstep::properties
