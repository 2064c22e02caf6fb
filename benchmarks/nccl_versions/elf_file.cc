#include "benchmarks/nccl_versions/elf_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <libelf.h>
#include <unistd.h>

#include <memory>
#include <span>

namespace lockstep::benchmarks {
namespace {

#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
constexpr const char* kMachineName = "x86_64";
#elif defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
constexpr const char* kMachineName = "aarch64";
#else
#error "the program reads libraries for x86_64 and aarch64"
#endif

constexpr std::size_t kShortestText = 4;
constexpr std::size_t kLongestText = 200;

struct EndElf {
  void operator()(Elf* elf) const { ::elf_end(elf); }
};
using OwnedElf = std::unique_ptr<Elf, EndElf>;

// Null if the file cannot be opened, or is empty.
OwnedElf open_elf(const std::string& path) {
  ::elf_version(EV_CURRENT);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return nullptr;
  OwnedElf elf(::elf_begin(file, ELF_C_READ_MMAP, nullptr));
  // The contents are mapped, so that the file can be closed.
  if (elf != nullptr) ::elf_cntl(elf.get(), ELF_C_FDREAD);
  ::close(file);
  return elf;
}

std::string name_of_machine(int machine) {
  if (machine == EM_X86_64) return "x86_64";
  if (machine == EM_AARCH64) return "aarch64";
  return fmt::format("machine {}", machine);
}

void add_texts(std::span<const char> data, std::vector<std::string>& texts) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const char c = data[i];
    if (c >= ' ' && c <= '~') continue;
    const std::size_t length = i - begin;
    if (c == '\0' && length >= kShortestText && length <= kLongestText)
      texts.emplace_back(data.data() + begin, length);
    begin = i + 1;
  }
}

// Returns why the file cannot be read, or nothing.
std::string wrong_with(Elf* elf) {
  if (elf == nullptr) return "cannot be opened, or is empty";
  GElf_Ehdr header;
  if (::elf_kind(elf) != ELF_K_ELF || ::gelf_getehdr(elf, &header) == nullptr)
    return "is no shared library";
  if (::gelf_getclass(elf) != ELFCLASS64 || header.e_machine != kMachine)
    return fmt::format("is for {}, and this machine is {}", name_of_machine(header.e_machine),
                       kMachineName);
  return header.e_type == ET_DYN ? "" : "is no shared library";
}

bool add_symbols(Elf* elf, const GElf_Shdr& section, Elf_Data* table, ElfFile& out) {
  GElf_Sym symbol;
  for (int i = 0; ::gelf_getsym(table, i, &symbol) != nullptr; ++i) {
    const int type = GELF_ST_TYPE(symbol.st_info);
    const bool is_function = type == STT_FUNC || type == STT_GNU_IFUNC;
    if (!is_function || symbol.st_shndx == SHN_UNDEF) continue;
    const char* const name = ::elf_strptr(elf, section.sh_link, symbol.st_name);
    if (name == nullptr) return false;
    if (section.sh_type == SHT_DYNSYM)
      out.exported_functions.insert(name);
    else
      out.functions.emplace(name, symbol.st_value);
  }
  return true;
}

// Returns whether the file has all that its sections promise.
bool read_sections(Elf* elf, ElfFile& out) {
  Elf_Scn* section = nullptr;
  int count = 0;
  while ((section = ::elf_nextscn(elf, section)) != nullptr) {
    ++count;
    GElf_Shdr header;
    if (::gelf_getshdr(section, &header) == nullptr) return false;
    constexpr std::uint64_t kKind = SHF_ALLOC | SHF_WRITE | SHF_EXECINSTR;
    const bool is_table = header.sh_type == SHT_DYNSYM || header.sh_type == SHT_SYMTAB;
    const bool is_constant =
        header.sh_type == SHT_PROGBITS && (header.sh_flags & kKind) == SHF_ALLOC;
    if (!is_table && !is_constant) continue;
    Elf_Data* const data = ::elf_getdata(section, nullptr);
    if (data == nullptr || data->d_size != header.sh_size) return false;
    if (is_constant)
      add_texts({static_cast<const char*>(data->d_buf), data->d_size}, out.texts);
    else if (!add_symbols(elf, header, data, out))
      return false;
  }
  return count > 0;
}

}  // namespace

Result<ElfFile> read_elf_file(const std::string& path) {
  const OwnedElf elf = open_elf(path);
  std::string wrong = wrong_with(elf.get());
  ElfFile out;
  if (wrong.empty() && !read_sections(elf.get(), out)) wrong = "is torn: it ends too early";
  if (!wrong.empty())
    return failed(Status(Code::kInvalidArgument, fmt::format("'{}' {}", path, wrong)));
  return out;
}

}  // namespace lockstep::benchmarks
