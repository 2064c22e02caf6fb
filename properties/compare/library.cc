#include "properties/compare/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "properties/lane/nccl_cache.h"

namespace lockstep::properties {
namespace {

Result<Library> find_library(const std::string& text, const std::string& cache) {
  const std::size_t equals = text.find('=');
  const std::string name = equals == std::string::npos ? text : text.substr(0, equals);
  Result<std::string> file =
      find_nccl(equals == std::string::npos ? text : text.substr(equals + 1), cache);
  if (!file) return failed(file.error());
  return Library{name, std::move(*file)};
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
