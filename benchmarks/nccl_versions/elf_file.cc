#include "benchmarks/nccl_versions/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <span>
#include <string_view>

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

std::string name_of_machine(int machine) {
  if (machine == EM_X86_64) return "x86_64";
  if (machine == EM_AARCH64) return "aarch64";
  return fmt::format("machine {}", machine);
}

// The bytes of a file, for as long as this lives.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    struct stat status {};
    if (::fstat(file, &status) == 0 && status.st_size > 0) {
      const auto size = static_cast<std::size_t>(status.st_size);
      void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
      if (data != MAP_FAILED) bytes_ = {static_cast<const char*>(data), size};
    }
    ::close(file);
  }
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const char> bytes() const { return bytes_; }

  // Returns nothing if the file ends before.
  std::optional<std::span<const char>> part(std::uint64_t begin, std::uint64_t size) const {
    if (begin > bytes_.size() || size > bytes_.size() - begin) return std::nullopt;
    return bytes_.subspan(begin, size);
  }

  template <class Record>
  std::optional<std::vector<Record>> records(std::uint64_t begin, std::uint64_t size) const {
    const auto from = part(begin, size);
    if (!from) return std::nullopt;
    std::vector<Record> found(from->size() / sizeof(Record));
    if (!found.empty()) std::memcpy(found.data(), from->data(), found.size() * sizeof(Record));
    return found;
  }

 private:
  std::span<const char> bytes_;
};

std::string text_at(std::span<const char> table, std::uint64_t begin) {
  if (begin >= table.size()) return "";
  const std::span<const char> rest = table.subspan(begin);
  return {rest.data(), ::strnlen(rest.data(), rest.size())};
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

void add_symbols(const std::vector<Elf64_Sym>& symbols, std::span<const char> names, bool exported,
                 ElfFile& out) {
  for (const Elf64_Sym& symbol : symbols) {
    const int type = ELF64_ST_TYPE(symbol.st_info);
    const bool is_function = type == STT_FUNC || type == STT_GNU_IFUNC;
    if (!is_function || symbol.st_shndx == SHN_UNDEF) continue;
    const std::string name = text_at(names, symbol.st_name);
    if (exported)
      out.exported_functions.insert(name);
    else
      out.functions.emplace(name, symbol.st_value);
  }
}

// Returns why the file cannot be read, or nothing.
std::string wrong_with(std::span<const char> bytes, Elf64_Ehdr& header) {
  if (bytes.empty()) return "cannot be opened, or is empty";
  if (bytes.size() < sizeof header || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0)
    return "is no shared library";
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachine)
    return fmt::format("is for {}, and this machine is {}", name_of_machine(header.e_machine),
                       kMachineName);
  if (header.e_type != ET_DYN) return "is no shared library";
  if (header.e_shentsize != sizeof(Elf64_Shdr)) return "is torn: it has no sections";
  return "";
}

// Returns whether the file has all that its sections promise.
bool read_sections(const MappedFile& file, const Elf64_Ehdr& header, ElfFile& out) {
  const auto sections =
      file.records<Elf64_Shdr>(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr));
  if (!sections || sections->empty()) return false;
  for (const Elf64_Shdr& section : *sections) {
    const bool is_exported = section.sh_type == SHT_DYNSYM;
    if (is_exported || section.sh_type == SHT_SYMTAB) {
      if (section.sh_link >= sections->size()) return false;
      const Elf64_Shdr& text = (*sections)[section.sh_link];
      const auto symbols = file.records<Elf64_Sym>(section.sh_offset, section.sh_size);
      const auto names = file.part(text.sh_offset, text.sh_size);
      if (!symbols || !names) return false;
      add_symbols(*symbols, *names, is_exported, out);
    }
    constexpr std::uint64_t kKind = SHF_ALLOC | SHF_WRITE | SHF_EXECINSTR;
    const bool is_constant =
        section.sh_type == SHT_PROGBITS && (section.sh_flags & kKind) == SHF_ALLOC;
    if (!is_constant) continue;
    const auto data = file.part(section.sh_offset, section.sh_size);
    if (!data) return false;
    add_texts(*data, out.texts);
  }
  return true;
}

}  // namespace

Result<ElfFile> read_elf_file(const std::string& path) {
  const MappedFile file(path);
  Elf64_Ehdr header{};
  std::string wrong = wrong_with(file.bytes(), header);
  ElfFile out;
  if (wrong.empty() && !read_sections(file, header, out)) wrong = "is torn: it ends too early";
  if (!wrong.empty())
    return failed(Status(Code::kInvalidArgument, fmt::format("'{}' {}", path, wrong)));
  return out;
}

}  // namespace lockstep::benchmarks
