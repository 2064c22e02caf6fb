#include "faults/played_gpu/symbols.h"

#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

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

struct EndElf {
  void operator()(Elf* elf) const { ::elf_end(elf); }
};
using OwnedElf = std::unique_ptr<Elf, EndElf>;

Result<OwnedElf> open_library(const std::string& path) {
  ::elf_version(EV_CURRENT);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed(refused(path, std::strerror(errno)));
  OwnedElf elf(::elf_begin(fd, ELF_C_READ_MMAP, nullptr));
  // The contents are mapped, so that the file can be closed.
  if (elf != nullptr) ::elf_cntl(elf.get(), ELF_C_FDREAD);
  ::close(fd);
  GElf_Ehdr header;
  if (elf == nullptr || ::elf_kind(elf.get()) != ELF_K_ELF ||
      ::gelf_getclass(elf.get()) != ELFCLASS64 || ::gelf_getehdr(elf.get(), &header) == nullptr)
    return failed(refused(path, "it is no 64-bit ELF library"));
  if (header.e_machine != kMachine)
    return failed(refused(path, "it is for another kind of processor"));
  return elf;
}

// Of a section; the data are null if the file does not have them all.
struct Section {
  std::string name;
  GElf_Shdr header{};
  Elf_Data* data = nullptr;
};

Section section_of(Elf* elf, Elf_Scn* handle) {
  Section out;
  std::size_t names = 0;
  if (::gelf_getshdr(handle, &out.header) == nullptr) return {};
  if (::elf_getshdrstrndx(elf, &names) == 0)
    if (const char* const name = ::elf_strptr(elf, names, out.header.sh_name); name != nullptr)
      out.name = name;
  if (out.header.sh_type != SHT_SYMTAB) return out;
  out.data = ::elf_getdata(handle, nullptr);
  if (out.data != nullptr && out.data->d_size != out.header.sh_size) out.data = nullptr;
  return out;
}

}  // namespace

Result<Symbols> Symbols::read(const std::string& path) {
  const Result<OwnedElf> opened = open_library(path);
  if (!opened) return failed(opened.error());
  Elf* const elf = opened->get();
  Symbols out;
  Section table;
  for (Elf_Scn* handle = ::elf_nextscn(elf, nullptr); handle != nullptr;
       handle = ::elf_nextscn(elf, handle)) {
    const Section each = section_of(elf, handle);
    if (each.name == ".text") {
      out.code_begin_ = each.header.sh_addr;
      out.code_end_ = each.header.sh_addr + each.header.sh_size;
    }
    if (each.header.sh_type == SHT_SYMTAB) table = each;
  }
  if (table.header.sh_type != SHT_SYMTAB)
    return failed(refused(path,
                          "it has no symbol table (.symtab), which says where its CUDA runtime is; "
                          "take a library that was not stripped (ci/nccl fetch VERSION)"));
  if (table.data == nullptr) return failed(refused(path, "its symbol table is cut off"));
  GElf_Sym symbol;
  for (int i = 0; ::gelf_getsym(table.data, i, &symbol) != nullptr; ++i) {
    const int type = GELF_ST_TYPE(symbol.st_info);
    if (symbol.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_OBJECT)) continue;
    const char* const name = ::elf_strptr(elf, table.header.sh_link, symbol.st_name);
    if (name == nullptr) return failed(refused(path, "its symbol table is cut off"));
    out.all_.push_back({name, symbol.st_value, symbol.st_size, type == STT_FUNC,
                        GELF_ST_BIND(symbol.st_info) == STB_LOCAL});
  }
  return out;
}

const Symbol* Symbols::find(const std::string& name) const {
  for (const Symbol& each : all_)
    if (each.name == name) return &each;
  return nullptr;
}

}  // namespace lockstep::played
