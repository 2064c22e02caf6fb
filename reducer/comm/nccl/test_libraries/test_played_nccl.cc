// Libraries that play NCCL on a machine without a device, for the tests of load_nccl() and of
// nccl_conformance. The build compiles this file once as it should be, and once for each thing that
// is planted: PLANT_* says what differs. PLAYED_VERSION is the version that it reports (2.18.3);
// with 0 it reports none.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#ifndef PLAYED_VERSION
#define PLAYED_VERSION 21803
#endif
#define PLAYED(name) extern "C" __attribute__((visibility("default"))) int name

constexpr int kSuccess = 0;
constexpr int kNoDevice = 1;
constexpr int kInternalError = 3;
constexpr int kInvalidArgument = 4;
constexpr int kInvalidUsage = 5;

struct ncclComm {
  const void* network;
};

namespace {

// The table of a network begins with its name, and with a function.
struct Table {
  const char* name;
  void (*init)();
};
void nothing() {}
const Table kSocket = {"Socket", nothing};
const void* plugin_table = nullptr;

void look_for_plugin() {
#ifndef PLANT_OWN_NETWORK
  const char* const name = std::getenv("NCCL_NET_PLUGIN");
  const std::string file = std::string("libnccl-net-") + (name != nullptr ? name : "none") + ".so";
  void* const plugin = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) return;
#ifdef PLANT_DIFFERENCES
  plugin_table = dlsym(plugin, "ncclNetPlugin_v7");
  if (plugin_table != nullptr) return;
#endif
  plugin_table = dlsym(plugin, "ncclNetPlugin_v6");
#endif
}

}  // namespace

// NCCL has this one in .symtab alone.
__attribute__((visibility("hidden"), noinline, used)) int ncclNetInit(ncclComm* comm) {
  comm->network = plugin_table != nullptr ? plugin_table : &kSocket;
  return kSuccess;
}

PLAYED(ncclGetVersion)(int* version) {
  *version = PLAYED_VERSION;
  return PLAYED_VERSION == 0 ? kInternalError : kSuccess;
}
PLAYED(ncclGetUniqueId)(void*) {
  look_for_plugin();
  return kSuccess;
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(int) { return ""; }
extern "C" __attribute__((visibility("default"))) const char* ncclGetLastError(void*) {
  return "there is no device";
}
PLAYED(ncclCommInitRankConfig)() { return kNoDevice; }
PLAYED(ncclCommDestroy)() {
#ifdef PLANT_EXIT
  std::exit(0);
#endif
  return kSuccess;
}
PLAYED(ncclCommAbort)() {
#ifdef PLANT_CRASH
  std::abort();
#endif
  return kSuccess;
}
PLAYED(ncclCommFinalize)() { return kSuccess; }
PLAYED(ncclGroupStart)() { return kSuccess; }
PLAYED(ncclGroupEnd)() {
#ifdef PLANT_DIFFERENCES
  return kSuccess;
#else
  return kInvalidUsage;
#endif
}
PLAYED(ncclCommCount)() {
#ifdef PLANT_HANG
  while (true) pause();
#endif
  return kInvalidArgument;
}

#define REFUSES(name) \
  PLAYED(name)() { return kInvalidArgument; }
REFUSES(ncclCommGetAsyncError)
REFUSES(ncclCommCuDevice)
REFUSES(ncclCommUserRank)
REFUSES(ncclRedOpCreatePreMulSum)
REFUSES(ncclRedOpDestroy)
REFUSES(ncclBroadcast)
#ifndef PLANT_WITHOUT_ALL_REDUCE
REFUSES(ncclAllReduce)
#endif
REFUSES(ncclReduceScatter)
REFUSES(ncclAllGather)
REFUSES(ncclSend)
REFUSES(ncclRecv)
#ifndef PLANT_WITHOUT_SPLIT
REFUSES(ncclCommSplit)
#endif
#ifdef PLANT_DIFFERENCES
PLAYED(ncclPlanted)() { return std::getenv("NCCL_PLANTED") != nullptr ? kSuccess : kInvalidUsage; }
#endif
