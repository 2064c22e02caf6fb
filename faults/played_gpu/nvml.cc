// libnvidia-ml.so.1 of the played GPU: one device without NVLink, on a PCI bus of 16 lanes.
// Functions that NCCL can do without are not here.
#include <cstddef>

#define PLAYED extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;

int device = 0;  // its address is the device's handle

}  // namespace

PLAYED int nvmlInit() { return kSuccess; }
PLAYED int nvmlInit_v2() { return kSuccess; }
PLAYED int nvmlShutdown() { return kSuccess; }
PLAYED const char* nvmlErrorString(int) { return "not supported by the played GPU"; }
PLAYED int nvmlDeviceGetCount(unsigned* count) {
  *count = 1;
  return kSuccess;
}
PLAYED int nvmlDeviceGetCount_v2(unsigned* count) { return nvmlDeviceGetCount(count); }
PLAYED int nvmlDeviceGetHandleByIndex(unsigned, void** handle) {
  *handle = &device;
  return kSuccess;
}
PLAYED int nvmlDeviceGetHandleByPciBusId(const char*, void** handle) {
  return nvmlDeviceGetHandleByIndex(0, handle);
}
PLAYED int nvmlDeviceGetIndex(void*, unsigned* index) {
  *index = 0;
  return kSuccess;
}
PLAYED int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return kSuccess;
}
PLAYED int nvmlDeviceGetNvLinkState(void*, unsigned, int*) { return kNotSupported; }
PLAYED int nvmlDeviceGetNvLinkRemotePciInfo(void*, unsigned, void*) { return kNotSupported; }
PLAYED int nvmlDeviceGetNvLinkCapability(void*, unsigned, int, unsigned*) { return kNotSupported; }
PLAYED int nvmlDeviceGetP2PStatus(void*, void*, int, int* status) {
  *status = 5;  // not supported
  return kSuccess;
}
PLAYED int nvmlDeviceGetFieldValues(void*, int, void*) { return kNotSupported; }
PLAYED int nvmlDeviceGetPciInfo_v3(void*, void*) { return kNotSupported; }
PLAYED int nvmlDeviceGetPciInfoExt(void*, void*) { return kNotSupported; }
PLAYED int nvmlDeviceGetPcieLinkMaxSpeed(void*, int* megabytes) {
  *megabytes = 32000;
  return kSuccess;
}
PLAYED int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned* generation) {
  *generation = 5;
  return kSuccess;
}
PLAYED int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* lanes) {
  *lanes = 16;
  return kSuccess;
}
