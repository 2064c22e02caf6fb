#include "benchmarks/nccl_versions/recorded_lookups.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <mutex>

namespace lockstep::benchmarks {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kSlot = R_X86_64_JUMP_SLOT;
constexpr std::uint32_t kGlobal = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr std::uint32_t kSlot = R_AARCH64_JUMP_SLOT;
constexpr std::uint32_t kGlobal = R_AARCH64_GLOB_DAT;
#endif

struct Lookups {
  std::mutex mutex;
  std::vector<std::pair<std::string, bool>> names;  // guarded by mutex
};

Lookups& lookups() {
  static auto* const only = new Lookups;  // threads of the library may outlive main()
  return *only;
}

void* recording_dlsym(void* handle, const char* name) {
  void* const found = ::dlsym(handle, name);
  if (std::strncmp(name, "nccl", 4) == 0) {
    std::lock_guard lock(lookups().mutex);
    lookups().names.emplace_back(name, found != nullptr);
  }
  return found;
}

// What the dynamic section of a loaded library says; the loader has made addresses of its pointers.
struct Dynamic {
  const Elf64_Sym* symbols = nullptr;
  const char* names = nullptr;
  std::vector<std::pair<const Elf64_Rela*, std::size_t>> relocations;
};

Dynamic read_dynamic(const link_map& map) {
  Dynamic out;
  const Elf64_Rela* general = nullptr;
  const Elf64_Rela* calls = nullptr;
  std::size_t general_bytes = 0;
  std::size_t call_bytes = 0;
  for (const Elf64_Dyn* one = map.l_ld; one->d_tag != DT_NULL; ++one) {
    const auto* const address = reinterpret_cast<const void*>(one->d_un.d_ptr);
    if (one->d_tag == DT_SYMTAB) out.symbols = static_cast<const Elf64_Sym*>(address);
    if (one->d_tag == DT_STRTAB) out.names = static_cast<const char*>(address);
    if (one->d_tag == DT_RELA) general = static_cast<const Elf64_Rela*>(address);
    if (one->d_tag == DT_RELASZ) general_bytes = one->d_un.d_val;
    if (one->d_tag == DT_JMPREL) calls = static_cast<const Elf64_Rela*>(address);
    if (one->d_tag == DT_PLTRELSZ) call_bytes = one->d_un.d_val;
  }
  if (general != nullptr) out.relocations.emplace_back(general, general_bytes / sizeof(Elf64_Rela));
  if (calls != nullptr) out.relocations.emplace_back(calls, call_bytes / sizeof(Elf64_Rela));
  return out;
}

// The loader may have made the page of the pointer read-only.
bool replace(void** place, void* with) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(place) / page * page;
  if (::mprotect(reinterpret_cast<void*>(begin), page, PROT_READ | PROT_WRITE) != 0) return false;
  *place = with;
  return true;
}

}  // namespace

bool record_lookups(void* library) {
  link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return false;
  const Dynamic dynamic = read_dynamic(*map);
  if (dynamic.symbols == nullptr || dynamic.names == nullptr) return false;
  bool is_replaced = false;
  for (const auto& [first, count] : dynamic.relocations) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t type = ELF64_R_TYPE(first[i].r_info);
      if (type != kSlot && type != kGlobal) continue;
      const Elf64_Sym& symbol = dynamic.symbols[ELF64_R_SYM(first[i].r_info)];
      if (std::strcmp(dynamic.names + symbol.st_name, "dlsym") != 0) continue;
      auto** const place = reinterpret_cast<void**>(map->l_addr + first[i].r_offset);
      is_replaced = replace(place, reinterpret_cast<void*>(&recording_dlsym)) || is_replaced;
    }
  }
  return is_replaced;
}

std::vector<std::pair<std::string, bool>> recorded_lookups() {
  std::lock_guard lock(lookups().mutex);
  return lookups().names;
}

}  // namespace lockstep::benchmarks
