// NCCL 2.30.7 gives NVML a structure that is too small: nvmlPciInfo_t has 68 bytes, and what NVML
// writes behind the 64th lies in another variable of NCCL's. This program stands in for NVML's
// function, fills all 68 bytes, and looks at the last four of them at the next call.
//   small_pci_info libnccl.so.2 [liblockstep-played-gpu.so]    without the second: on a GPU
// It is linked with -rdynamic, so that NCCL finds its dlsym. Only where sysfs does not have the
// vendor of the GPU does NCCL ask NVML.
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using Id = std::array<char, 128>;

constexpr char kLast[] = "\0\0\0";  // of the bus id, which fills 32 bytes
int calls = 0;
bool is_overwritten = false;

int pci_info(void*, char* info) {
  if (calls++ > 0 && std::memcmp(info + 64, kLast, 4) != 0) is_overwritten = true;
  std::memset(info, 0, 68);
  std::memcpy(info + 36, "00000000:00:1E.0", 16);
  return 0;
}

extern "C" void* dlsym(void* handle, const char* name) noexcept {
  static auto real =
      reinterpret_cast<void* (*)(void*, const char*)>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  if (!std::strcmp(name, "nvmlDeviceGetPciInfo_v3")) return reinterpret_cast<void*>(pci_info);
  return real(handle, name);
}

template <class Function>
Function* get(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

int main(int, char** files) {
  for (const char* each : {"NCCL_SOCKET_IFNAME=lo", "NCCL_NET=Socket", "NCCL_NET_PLUGIN=none",
                           "NCCL_CUMEM_HOST_ENABLE=0"})
    putenv(const_cast<char*>(each));
  if (files[2]) {
    void* played = dlopen(files[2], RTLD_NOW);
    if (!played) return std::puts(dlerror()), 2;
    if (auto why = get<const char*(const char*)>(played, "lockstep_played_load")(files[1]))
      return std::puts(why), 2;
  }
  void *nccl = dlopen(files[1], RTLD_NOW), *comm = nullptr;
  Id id;
  get<int(Id*)>(nccl, "ncclGetUniqueId")(&id);
  if (get<int(void**, int, Id, int)>(nccl, "ncclCommInitRank")(&comm, 1, id, 0)) return 2;
  std::printf(calls < 2 ? "NVML is not asked\n"
              : is_overwritten
                  ? "the last 4 bytes of NVML's structure are those of another variable\n"
                  : "NVML's structure stays as it was\n");
  return is_overwritten;
}
