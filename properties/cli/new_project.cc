#include "properties/cli/new_project.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "properties/case/case_json.h"
#include "properties/cli/output.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

// Returns why no project can be made in the folder, or nothing.
std::string refusal_of(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) return {};
  if (!fs::is_directory(status))
    return fmt::format("'{}' is a file: give a folder that does not exist yet", folder.string());
  const bool is_empty = fs::is_empty(folder, error);
  if (error)
    return fmt::format("the folder '{}' cannot be read: {}", folder.string(), error.message());
  if (is_empty) return {};
  return fmt::format(
      "the folder '{}' is not empty, and nothing in it is overwritten: give one that is empty or "
      "does not exist yet",
      folder.string());
}

// Returns why the file could not be written, or nothing.
std::string write_new_file(const fs::path& path, const char* text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error)
    return fmt::format("the folder '{}' cannot be made: {}", path.parent_path().string(),
                       error.message());
  const Status status = write_file(path.string(), text);
  return status.ok() ? "" : status.failure().detail;
}

constexpr const char* kNextCpp =
    "\nNext: replace flat_reducer.cc by your reducer (README.md), then\n"
    "  cd {} && cmake -S . -B build && cmake --build build && ctest --test-dir build\n";
constexpr const char* kNextPython =
    "\nNext: replace wrap() in wrapper.py by your wrapper (README.md), then\n"
    "  cd {} && python3 -m pytest\n";

}  // namespace

int run_new(const NewOptions& options) {
  const bool is_cpp = options.kind == "cpp";
  const fs::path folder = options.folder;
  if (const std::string why = refusal_of(folder); !why.empty()) return complain("new: " + why);
  std::string said;
  for (const NewFile& file : is_cpp ? files_of_new_cpp() : files_of_new_python()) {
    const fs::path path = folder / file.name;
    if (const std::string why = write_new_file(path, file.text); !why.empty())
      return complain("new: " + why);
    said += path.string() + "\n";
  }
  said +=
      is_cpp ? fmt::format(kNextCpp, folder.string()) : fmt::format(kNextPython, folder.string());
  tell(said);
  return 0;
}

}  // namespace lockstep::properties
