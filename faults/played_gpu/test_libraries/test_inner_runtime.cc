// The functions of test_inner_callers.cc. The inner call must stay as it is.
#include <cstddef>
#include <cstdlib>

#define EXPORT extern "C" __attribute__((visibility("default")))
#define LOCAL extern "C" __attribute__((visibility("hidden"), noinline))

LOCAL int cudaGetDeviceCount(int* count);
LOCAL int cudaMalloc(void** data, std::size_t bytes);
LOCAL int cudaFree(void* data);
LOCAL int cudaNobodyPlaysThis(int value);
LOCAL int cudaZoneOfTheRuntimeEnds(int value);
LOCAL int cudahelper(int value);

int cudaGetDeviceCount(int* count) {
  *count = 77;
  return 0;
}
int cudaMalloc(void** data, std::size_t bytes) {
  *data = std::calloc(bytes, 1);
  return 0;
}
int cudaFree(void* data) {
  std::free(data);
  return 0;
}
int cudaNobodyPlaysThis(int value) { return value; }

EXPORT int devices_by_the_runtime() {
  int count = -1;
  return cudaGetDeviceCount(&count) == 0 ? count : -2;
}
int cudaZoneOfTheRuntimeEnds(int value) { return value + 1; }

int cudahelper(int value) { return value * 2; }
