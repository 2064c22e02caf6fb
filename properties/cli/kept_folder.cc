#include "properties/cli/kept_folder.h"

#include <filesystem>
#include <string_view>
#include <system_error>

namespace lockstep::properties {

std::string kept_folder(const std::string& folder) {
  constexpr std::string_view kInCheckout = "properties/";
  std::error_code error;
  if (std::filesystem::exists(folder, error) || !folder.starts_with(kInCheckout)) return folder;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::filesystem::path installed =
      program / "../share/lockstep" / folder.substr(kInCheckout.size());
  return std::filesystem::is_directory(installed, error)
             ? std::filesystem::canonical(installed, error).string()
             : folder;
}

}  // namespace lockstep::properties
