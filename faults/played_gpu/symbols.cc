#include "faults/played_gpu/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>

namespace lockstep::played {
namespace {

#if defined(__x86_64__)
constexpr std::uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr std::uint16_t kMachine = EM_AARCH64;
#else
constexpr std::uint16_t kMachine = EM_NONE;
#endif

Status refused(const std::string& file, const std::string& why) {
  return Status(Code::kInvalidArgument, file + " cannot be played: " + why);
}

class MappedFile {
 public:
  explicit MappedFile(const std::string& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat found {};
    if (fd >= 0 && ::fstat(fd, &found) == 0 && found.st_size > 0) {
      const auto bytes = static_cast<std::size_t>(found.st_size);
      void* const memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
      if (memory != MAP_FAILED) bytes_ = {static_cast<const std::byte*>(memory), bytes};
    }
    error_ = errno;
    if (fd >= 0) ::close(fd);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
  bool is_open() const { return !bytes_.empty(); }
  int error() const { return error_; }

  // Null if the file is too short for them.
  template <class T>
  const T* at(std::uint64_t offset, std::uint64_t count = 1) const {
    if (offset > bytes_.size() || count > (bytes_.size() - offset) / sizeof(T)) return nullptr;
    return reinterpret_cast<const T*>(bytes_.data() + offset);
  }
  std::string_view text(std::uint64_t offset, std::uint64_t end) const {
    if (offset >= end || end > bytes_.size()) return {};
    const char* const begin = reinterpret_cast<const char*>(bytes_.data() + offset);
    return {begin, ::strnlen(begin, end - offset)};
  }

 private:
  std::span<const std::byte> bytes_;
  int error_ = 0;
};

struct Section {
  std::string_view name;
  const Elf64_Shdr* header = nullptr;
};

std::vector<Section> sections_of(const MappedFile& file) {
  const auto* header = file.at<Elf64_Ehdr>(0);
  const auto* sections = file.at<Elf64_Shdr>(header->e_shoff, header->e_shnum);
  std::vector<Section> all;
  if (sections == nullptr || header->e_shstrndx >= header->e_shnum) return all;
  const Elf64_Shdr& names = sections[header->e_shstrndx];
  for (std::size_t i = 0; i < header->e_shnum; ++i)
    all.push_back(
        {file.text(names.sh_offset + sections[i].sh_name, names.sh_offset + names.sh_size),
         &sections[i]});
  return all;
}

}  // namespace

Result<Symbols> Symbols::read(const std::string& path) {
  const MappedFile file(path);
  if (!file.is_open()) return failed(refused(path, std::strerror(file.error())));
  const auto* header = file.at<Elf64_Ehdr>(0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64)
    return failed(refused(path, "it is no 64-bit ELF library"));
  if (header->e_machine != kMachine)
    return failed(refused(path, "it is for another kind of processor"));
  Symbols out;
  const std::vector<Section> sections = sections_of(file);
  const Elf64_Shdr* table = nullptr;
  for (const Section& each : sections) {
    if (each.name == ".text") {
      out.code_begin_ = each.header->sh_addr;
      out.code_end_ = each.header->sh_addr + each.header->sh_size;
    }
    if (each.header->sh_type == SHT_SYMTAB) table = each.header;
  }
  if (table == nullptr || table->sh_link >= sections.size())
    return failed(refused(path,
                          "it has no symbol table (.symtab), which says where its CUDA runtime is; "
                          "take a library that was not stripped (ci/nccl fetch VERSION)"));
  const std::uint64_t count = table->sh_size / sizeof(Elf64_Sym);
  const auto* symbols = file.at<Elf64_Sym>(table->sh_offset, count);
  if (symbols == nullptr) return failed(refused(path, "its symbol table is cut off"));
  const Elf64_Shdr& names = *sections[table->sh_link].header;
  for (std::uint64_t i = 0; i < count; ++i) {
    const int type = ELF64_ST_TYPE(symbols[i].st_info);
    if (symbols[i].st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_OBJECT)) continue;
    out.all_.push_back({std::string(file.text(names.sh_offset + symbols[i].st_name,
                                              names.sh_offset + names.sh_size)),
                        symbols[i].st_value, symbols[i].st_size, type == STT_FUNC,
                        ELF64_ST_BIND(symbols[i].st_info) == STB_LOCAL});
  }
  return out;
}

const Symbol* Symbols::find(const std::string& name) const {
  for (const Symbol& each : all_)
    if (each.name == name) return &each;
  return nullptr;
}

}  // namespace lockstep::played
