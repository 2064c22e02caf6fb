#include "reducer/base/loader_error.h"

#include <dlfcn.h>

#include <array>
#include <fstream>
#include <string_view>

namespace lockstep {
namespace {

// The number that the format ELF has for the processor a file is built for; 0 for another file.
int processor_of(const std::string& file) {
  constexpr std::size_t kPlace = 18;
  std::array<char, kPlace + 2> begin{};
  std::ifstream in(file, std::ios::binary);
  in.read(begin.data(), begin.size());
  const bool is_elf = in.gcount() == static_cast<std::streamsize>(begin.size()) &&
                      std::string_view(begin.data(), 4) == "\177ELF";
  return is_elf ? static_cast<unsigned char>(begin[kPlace]) : 0;
}

std::string name_of_processor(int number) {
  if (number == 62) return "x86_64";
  return number == 183 ? "aarch64" : "the processor with ELF's number " + std::to_string(number);
}

}  // namespace

std::string loader_error(const std::string& file) {
  const char* const error = ::dlerror();
  const int processor = processor_of(file);
  const int own = processor_of("/proc/self/exe");
  if (processor != 0 && own != 0 && processor != own)
    return "it is built for " + name_of_processor(processor) + ", and this program for " +
           name_of_processor(own);
  return error != nullptr ? error : "the loader gives no reason";
}

}  // namespace lockstep
