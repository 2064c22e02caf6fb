// A tiny library that holds a "CUDA runtime", as NCCL's wheels do: its functions are local, and
// called by near calls. These are the callers; test_inner_runtime.cc has the functions.
#include <cstddef>

#define EXPORT extern "C" __attribute__((visibility("default")))
#define LOCAL extern "C" __attribute__((visibility("hidden")))

LOCAL int cudaGetDeviceCount(int* count);
LOCAL int cudaMalloc(void** data, std::size_t bytes);
LOCAL int cudaFree(void* data);
LOCAL int cudaNobodyPlaysThis(int value);
LOCAL int cudahelper(int value);

// A function with a name of theirs that stands far before the callers, and not where the others do.
asm(R"(
  .text
  .type cudaStrayFunction, @function
cudaStrayFunction:
  ret
  .size cudaStrayFunction, 1
  .skip 131072, 0x90
)");

EXPORT int devices() {
  int count = -1;
  return cudaGetDeviceCount(&count) == 0 ? count : -2;
}
EXPORT int allocates() {
  void* data = nullptr;
  if (cudaMalloc(&data, 10) != 0) return -1;
  const int first = *static_cast<unsigned char*>(data);
  return cudaFree(data) == 0 ? first : -2;
}
EXPORT int calls_what_is_not_played() { return cudaNobodyPlaysThis(7); }
// A name like theirs, which is none of theirs.
EXPORT int calls_a_helper() { return cudahelper(7); }

#ifdef HAS_VERSION
EXPORT int ncclGetVersion(int* version) {
  *version = HAS_VERSION;
  return 0;
}
#endif
