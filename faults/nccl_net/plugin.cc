// The two tables that NCCL finds in this library. They use the classes beside this file.
//
// The name for NCCL_NET is "Lockstep". No exception leaves a function. The table of version 6 never
// fails in init(): after a failure NCCL 2.28 calls finalize, which is still null for tables before
// version 11. Errors are logged instead, and connections fail with them.
#include <climits>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>

#include "faults/nccl_net/rendezvous.h"

namespace lockstep::faults::net {
namespace {

constexpr char kName[] = "Lockstep";
constexpr int kSpeed = 10'000;  // Mbit/s; NCCL tunes by it
constexpr int kMaxConnections = 65'536;
constexpr std::size_t kMaxMessage = std::size_t{1} << 30;  // test() returns sizes as int

// The context of the newest initialization, for calls that NCCL makes without one. It is not
// destroyed, because NCCL's threads may outlive main().
struct Latest {
  std::mutex mutex;
  std::shared_ptr<Context> context;  // guarded by mutex
  // The names of interfaces, to which NCCL retains pointers. Guarded by mutex.
  std::set<std::string> names;
};

Latest& latest() {
  static auto* const only = new Latest;
  return *only;
}

std::shared_ptr<Context> latest_context() {
  std::lock_guard lock(latest().mutex);
  return latest().context;
}

void set_latest(std::shared_ptr<Context> context) {
  std::lock_guard lock(latest().mutex);
  latest().context.swap(context);
}

// The type of the context that init() returns to NCCL.
using ContextHandle = std::shared_ptr<Context>;

std::shared_ptr<Context> context_of(void* handle) {
  return handle != nullptr ? *static_cast<ContextHandle*>(handle) : latest_context();
}

template <typename Body>
int guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return kSystemError;
  } catch (...) {
    return kInternalError;
  }
}

int logged(const Context& context, const Error& error) {
  context.warn(error.text);
  return error.code;
}

int init_v6(Log log) {
  return guarded([&] {
    set_latest(Context::make_whatever_happens(log));
    return kSuccess;
  });
}

int init_v11(void** handle, std::uint64_t, ConfigV11*, Log log, ProfilerV11) {
  *handle = nullptr;  // NCCL finalizes a context even after a failure
  return guarded([&]() -> int {
    Outcome<std::shared_ptr<Context>> context = Context::make(log);
    if (!context) return context.error().code;
    set_latest(*context);
    *handle = new ContextHandle(std::move(*context));
    return kSuccess;
  });
}

int finalize(void* handle) {
  delete static_cast<ContextHandle*>(handle);
  return kSuccess;
}

int devices(int* count) {
  *count = 1;
  return kSuccess;
}

char* interface_name() {
  Latest& all = latest();
  std::lock_guard lock(all.mutex);
  if (all.context == nullptr) return nullptr;
  return const_cast<char*>(all.names.insert(all.context->interface().name).first->c_str());
}

int properties_v6(int device, PropertiesV6* out) {
  return guarded([&] {
    char* const name = interface_name();
    if (device != 0 || name == nullptr) return kInternalError;
    *out = PropertiesV6{name, nullptr, 1, kHostMemory, kSpeed, 0, 0.0f, kMaxConnections, 1};
    return kSuccess;
  });
}

int properties_v11(int device, PropertiesV11* out) {
  return guarded([&] {
    char* const name = interface_name();
    if (device != 0 || name == nullptr) return kInternalError;
    *out = PropertiesV11{};
    out->name = name;
    out->guid = 1;
    out->pointer_support = kHostMemory;
    out->speed = kSpeed;
    out->max_comms = kMaxConnections;
    out->max_receives = 1;
    out->offload_type = kNoOffload;
    out->offload_version = kNoOffloadVersion;
    out->virtual_device.count = 1;
    out->max_point_to_point_bytes = kMaxMessage;
    out->max_collective_bytes = kMaxMessage;
    out->max_multi_request_size = 1;
    return kSuccess;
  });
}

int listen_v11(void* handle, int device, void* wire_handle, void** listener) {
  return guarded([&]() -> int {
    *listener = nullptr;
    const std::shared_ptr<Context> context = context_of(handle);
    if (context == nullptr || device != 0) return kInternalError;
    Outcome<std::unique_ptr<Listener>> opened = Listener::open(context, wire_handle);
    if (!opened) return logged(*context, opened.error());
    *listener = opened->release();
    return kSuccess;
  });
}

int listen_v6(int device, void* wire_handle, void** listener) {
  return listen_v11(nullptr, device, wire_handle, listener);
}

// NCCL calls again with the same bytes, so the number of the attempt is stored in them.
int connect_again(const std::shared_ptr<Context>& context, void* wire_handle, void** sender) {
  Handle handle;
  std::memcpy(&handle, wire_handle, sizeof handle);
  if (handle.connector == 0) {
    Outcome<std::unique_ptr<Connector>> begun = Connector::begin(*context, handle);
    if (!begun) return logged(*context, begun.error());
    handle.connector = context->keep(std::move(*begun));
    std::memcpy(wire_handle, &handle, sizeof handle);
  }
  Connector* const connector = context->find(handle.connector);
  if (connector == nullptr)
    return logged(*context, {kInternalError, "connect() was given a handle that is used up"});
  Outcome<std::unique_ptr<Sender>> connected = connector->advance(context);
  if (connected && *connected == nullptr) return kSuccess;
  context->take(handle.connector);
  if (!connected) return logged(*context, connected.error());
  *sender = static_cast<Connection*>(connected->release());
  return kSuccess;
}

int connect_v11(void* handle, int device, void* wire_handle, void** sender, DeviceHandleV11**) {
  return guarded([&]() -> int {
    *sender = nullptr;
    const std::shared_ptr<Context> context = context_of(handle);
    if (context == nullptr || device != 0) return kInternalError;
    return connect_again(context, wire_handle, sender);
  });
}

int connect_v6(int device, void* wire_handle, void** sender) {
  return connect_v11(nullptr, device, wire_handle, sender, nullptr);
}

int accept_v6(void* listener, void** receiver) {
  return guarded([&]() -> int {
    *receiver = nullptr;
    if (listener == nullptr) return kInternalError;
    Outcome<std::unique_ptr<Receiver>> accepted = static_cast<Listener*>(listener)->accept();
    if (!accepted) return accepted.error().code;
    if (*accepted != nullptr) *receiver = static_cast<Connection*>(accepted->release());
    return kSuccess;
  });
}

int accept_v11(void* listener, void** receiver, DeviceHandleV11**) {
  return accept_v6(listener, receiver);
}

// Host memory needs no registration, and the plug-in supports no other memory.
int register_v11(void*, void*, std::size_t, int type, void** memory) {
  *memory = nullptr;
  return type == kHostMemory ? kSuccess : kInternalError;
}
int register_v6(void*, void*, int, int type, void** memory) {
  return register_v11(nullptr, nullptr, 0, type, memory);
}
int deregister(void*, void*) { return kSuccess; }

int post(void* connection, void* data, std::size_t size, void** request) {
  return guarded([&] {
    *request = nullptr;
    if (connection == nullptr || size > kMaxMessage) return static_cast<int>(kInternalError);
    return static_cast<Connection*>(connection)->post(data, size, request);
  });
}

int isend_v11(void* sender, void* data, std::size_t size, int, void*, void*, void** request) {
  const int result = post(sender, data, size, request);
  if (*request != nullptr) count_sent(size);
  return result;
}
int isend_v6(void* sender, void* data, int size, int, void*, void** request) {
  *request = nullptr;
  return size < 0 ? kInternalError
                  : isend_v11(sender, data, static_cast<std::size_t>(size), 0, nullptr, nullptr,
                              request);
}

int irecv_v11(void* receiver, int count, void** data, std::size_t* sizes, int*, void**, void**,
              void** request) {
  // For LL protocols NCCL sets a mark in *request. Here no request completes early.
  *request = nullptr;
  return count != 1 ? kInternalError : post(receiver, data[0], sizes[0], request);
}
int irecv_v6(void* receiver, int count, void** data, int* sizes, int*, void**, void** request) {
  *request = nullptr;
  if (count != 1 || sizes[0] < 0) return kInternalError;
  return post(receiver, data[0], static_cast<std::size_t>(sizes[0]), request);
}

// Host memory needs no flush; a null request says that it is done.
int iflush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;
  return kSuccess;
}

int test(void* opaque, int* done, int* sizes) {
  return guarded([&] {
    *done = 0;
    auto* const request = static_cast<Request*>(opaque);
    if (request == nullptr) return static_cast<int>(kInternalError);
    return request->owner->test(*request, done, sizes);
  });
}

int close_connection(void* connection) {
  delete static_cast<Connection*>(connection);
  return kSuccess;
}
int close_listener(void* listener) {
  delete static_cast<Listener*>(listener);
  return kSuccess;
}

}  // namespace
}  // namespace lockstep::faults::net

namespace net = lockstep::faults::net;

extern "C" {

LOCKSTEP_NET_EXPORT extern const net::TableV6 ncclNetPlugin_v6;
const net::TableV6 ncclNetPlugin_v6 = {net::kName,
                                       net::init_v6,
                                       net::devices,
                                       net::properties_v6,
                                       net::listen_v6,
                                       net::connect_v6,
                                       net::accept_v6,
                                       net::register_v6,
                                       nullptr,
                                       net::deregister,
                                       net::isend_v6,
                                       net::irecv_v6,
                                       net::iflush,
                                       net::test,
                                       net::close_connection,
                                       net::close_connection,
                                       net::close_listener};

LOCKSTEP_NET_EXPORT extern const net::TableV11 ncclNetPlugin_v11;
const net::TableV11 ncclNetPlugin_v11 = {net::kName,
                                         net::init_v11,
                                         net::devices,
                                         net::properties_v11,
                                         net::listen_v11,
                                         net::connect_v11,
                                         net::accept_v11,
                                         net::register_v11,
                                         nullptr,
                                         net::deregister,
                                         net::isend_v11,
                                         net::irecv_v11,
                                         net::iflush,
                                         net::test,
                                         net::close_connection,
                                         net::close_connection,
                                         net::close_listener,
                                         nullptr,
                                         nullptr,
                                         nullptr,
                                         net::finalize,
                                         nullptr};

uint32_t lockstep_net_version(void) { return LOCKSTEP_NET_PLAN_VERSION; }

void lockstep_net_count(lockstep_net_counts* out) { *out = net::counts(); }

uint64_t lockstep_net_last_warning(char* text, uint64_t size) {
  const std::string warning = net::last_warning();
  if (size > 0) {
    const std::size_t count = std::min<std::size_t>(warning.size(), size - 1);
    std::memcpy(text, warning.data(), count);
    text[count] = '\0';
  }
  return warning.size();
}

}  // extern "C"
