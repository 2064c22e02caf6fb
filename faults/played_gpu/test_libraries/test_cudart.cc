// libcudart.so.12 as the linker sees it, when it links test_linked.cc.
#include <cstddef>

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cudaMalloc(void** data, std::size_t bytes);
EXPORT int cudaFree(void* data);

int cudaMalloc(void**, std::size_t) { return -1; }
int cudaFree(void*) { return -1; }
