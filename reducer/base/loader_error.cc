#include "reducer/base/loader_error.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string_view>
#include <type_traits>

namespace lockstep {
namespace {

// The number that the format ELF has for the processor a file is built for; 0 for another file.
int processor_of(const std::string& file) {
  constexpr std::size_t kPlace = 18;
  static_assert(kPlace == offsetof(Elf64_Ehdr, e_machine));
  static_assert(kPlace == offsetof(Elf32_Ehdr, e_machine));
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

template <typename Record>
bool read_at(std::ifstream& in, std::uint64_t offset, Record& out) {
  static_assert(std::is_trivially_copyable_v<Record>);
  in.clear();
  in.seekg(static_cast<std::streamoff>(offset));
  in.read(reinterpret_cast<char*>(&out), sizeof(out));
  return in.gcount() == static_cast<std::streamsize>(sizeof(out));
}

}  // namespace

std::string cut_off(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  Elf64_Ehdr header{};
  if (!read_at(in, 0, header) ||
      std::string_view(ELFMAG) !=
          std::string_view(reinterpret_cast<const char*>(header.e_ident), SELFMAG) ||
      header.e_ident[EI_CLASS] != ELFCLASS64)
    return "";
  std::uint64_t needed = header.e_phoff + std::uint64_t{header.e_phnum} * header.e_phentsize;
  Elf64_Phdr segment{};
  for (std::uint64_t each = 0; each < header.e_phnum; ++each)
    if (read_at(in, header.e_phoff + each * header.e_phentsize, segment))
      needed = std::max(needed, segment.p_offset + segment.p_filesz);
  in.clear();
  in.seekg(0, std::ios::end);
  const auto there = static_cast<std::uint64_t>(in.tellg());
  if (there >= needed) return "";
  return "it is cut off: of " + std::to_string(needed) + " bytes it has " + std::to_string(there);
}

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
