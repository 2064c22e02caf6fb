#include "properties/compare/whole_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace lockstep::properties {

bool write_whole(const std::string& file, const std::string& text) {
  const std::string partial = file + ".partial";
  std::ofstream out(partial, std::ios::binary);
  out << text;
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(partial, file, error);
  const bool is_written = out && !error;
  if (!is_written) std::filesystem::remove(partial, error);
  return is_written;
}

Result<std::string> read_whole(const std::string& file) {
  std::error_code ignored;
  std::ifstream in;
  if (std::filesystem::is_directory(file, ignored))
    errno = EISDIR;
  else
    in.open(file, std::ios::binary);
  if (!in.is_open())
    return failed(
        Status(Code::kInvalidArgument, file + " cannot be read: " + std::strerror(errno)));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace lockstep::properties
