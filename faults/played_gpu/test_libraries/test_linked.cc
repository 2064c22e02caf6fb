// A tiny library that is linked with libcudart.so, as an NCCL can be that a user has built. Its
// functions have versions there, by which the library asks for them.
#include <cstddef>

extern "C" int cudaMalloc(void** data, std::size_t bytes);
extern "C" int cudaFree(void* data);

extern "C" __attribute__((visibility("default"))) int allocates() {
  void* data = nullptr;
  if (cudaMalloc(&data, 10) != 0) return -1;
  const int first = *static_cast<unsigned char*>(data);
  return cudaFree(data) == 0 ? first : -2;
}
