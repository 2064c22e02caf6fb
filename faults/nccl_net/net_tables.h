// The two tables through which NCCL calls a net plug-in, in our own declaration: version 6, which
// NCCL 2.13.4 to 2.30 load, and version 11, which 2.28.3 and newer prefer. The order and the types
// of the fields are NCCL's; the names of the fields are ours. The assertions at the end compare the
// sizes with those of NCCL's own declarations on a machine with pointers of 8 bytes.
//
// Every function returns 0 or one of the codes below. Calls on one object are sequential; NCCL sets
// connections up on one thread and moves data on another.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::faults::net {

// The values of ncclResult_t.
enum NetResult : int {
  kSuccess = 0,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidUsage = 5,
  kRemoteError = 6,
};
constexpr int kLastResult = 7;

constexpr std::size_t kHandleBytes = 128;  // the bytes that listen() may pass to connect()
constexpr int kMaxRequests = 32;           // of one connection, at a time
constexpr int kHostMemory = 1;             // a type of memory; the plug-in supports no other
constexpr int kNoOffload = 0;              // a netDeviceType: the host moves the data
constexpr int kNoOffloadVersion = 0;

// NCCL's log function, and the levels and subsystems that the plug-in uses.
using Log = void (*)(int level, unsigned long subsystems, const char* file, int line,
                     const char* format, ...);
constexpr int kLogWarning = 2;
constexpr int kLogInfo = 3;
constexpr unsigned long kLogNet = 0x10;
constexpr unsigned long kLogAll = ~0ul;

struct PropertiesV6 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int speed;  // Mbit/s
  int port;
  float latency;  // microseconds
  int max_comms;
  int max_receives;
};

struct TableV6 {
  const char* name;
  int (*init)(Log log);
  int (*devices)(int* count);
  int (*get_properties)(int device, PropertiesV6* properties);
  int (*listen)(int device, void* handle, void** listen_comm);
  int (*connect)(int device, void* handle, void** send_comm);
  int (*accept)(void* listen_comm, void** receive_comm);
  int (*register_memory)(void* comm, void* data, int size, int type, void** memory);
  int (*register_dma_buffer)(void* comm, void* data, std::size_t size, int type,
                             std::uint64_t offset, int descriptor, void** memory);
  int (*deregister_memory)(void* comm, void* memory);
  int (*isend)(void* send_comm, void* data, int size, int tag, void* memory, void** request);
  int (*irecv)(void* receive_comm, int count, void** data, int* sizes, int* tags, void** memory,
               void** request);
  int (*iflush)(void* receive_comm, int count, void** data, int* sizes, void** memory,
                void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_receive)(void* receive_comm);
  int (*close_listen)(void* listen_comm);
};

constexpr int kMaxVirtualDevices = 4;

struct VirtualDeviceV11 {
  int count;
  int devices[kMaxVirtualDevices];
};

struct ConfigV11 {
  int traffic_class;
};

struct PropertiesV11 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_receives;
  int offload_type;  // an enum of NCCL's
  int offload_version;
  VirtualDeviceV11 virtual_device;
  std::size_t max_point_to_point_bytes;
  std::size_t max_collective_bytes;
  int max_multi_request_size;
};

struct AttributesV11;    // hints about traffic; the plug-in ignores them
struct DeviceHandleV11;  // for devices that offload; the plug-in never creates one
using ProfilerV11 = int (*)(void** event, int type, void* parent, std::int64_t plugin, void* extra);

struct TableV11 {
  const char* name;
  int (*init)(void** context, std::uint64_t comm_id, ConfigV11* config, Log log,
              ProfilerV11 profiler);
  int (*devices)(int* count);
  int (*get_properties)(int device, PropertiesV11* properties);
  int (*listen)(void* context, int device, void* handle, void** listen_comm);
  int (*connect)(void* context, int device, void* handle, void** send_comm,
                 DeviceHandleV11** device_handle);
  int (*accept)(void* listen_comm, void** receive_comm, DeviceHandleV11** device_handle);
  int (*register_memory)(void* comm, void* data, std::size_t size, int type, void** memory);
  int (*register_dma_buffer)(void* comm, void* data, std::size_t size, int type,
                             std::uint64_t offset, int descriptor, void** memory);
  int (*deregister_memory)(void* comm, void* memory);
  int (*isend)(void* send_comm, void* data, std::size_t size, int tag, void* memory, void* event,
               void** request);
  int (*irecv)(void* receive_comm, int count, void** data, std::size_t* sizes, int* tags,
               void** memory, void** events, void** request);
  int (*iflush)(void* receive_comm, int count, void** data, int* sizes, void** memory,
                void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_receive)(void* receive_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_memory)(void* comm, void* memory, void** device_memory);
  int (*receive_consumed)(void* receive_comm, int count, void* request);
  int (*make_virtual_device)(int* device, VirtualDeviceV11* properties);
  int (*finalize)(void* context);
  int (*set_attributes)(void* context, AttributesV11* attributes);
};

static_assert(sizeof(void*) == 8);
static_assert(sizeof(PropertiesV6) == 48);
static_assert(sizeof(TableV6) == 17 * sizeof(void*));
static_assert(sizeof(PropertiesV11) == 112);
static_assert(sizeof(TableV11) == 22 * sizeof(void*));

}  // namespace lockstep::faults::net
