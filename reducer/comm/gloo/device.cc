#include "reducer/comm/gloo/device.h"

#include <gloo/transport/tcp/device.h>
#include <netdb.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <map>
#include <system_error>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/gloo/gloo_errors.h"
#include "reducer/comm/gloo/guarded_transport.h"
#include "reducer/comm/gloo/sigpipe.h"
#include "reducer/comm/gloo/sockets.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { ::freeaddrinfo(addresses); }
};

Status unusable(const std::string& address, const std::string& why) {
  return Status(Code::kInvalidArgument,
                "the address '" + address + "' cannot be used for connections: " + why);
}

bool can_bind(const addrinfo& address, int& error) {
  const int socket = ::socket(address.ai_family, address.ai_socktype, address.ai_protocol);
  if (socket < 0) {
    error = errno;
    return false;
  }
  const bool is_bound = ::bind(socket, address.ai_addr, address.ai_addrlen) == 0;
  error = errno;
  ::close(socket);
  return is_bound;
}

// Returns the numeric form of the first address of a name that a socket on this machine can have.
// Gloo would resolve the name itself, but it follows an uninitialised pointer when there is no such
// address.
Result<std::string> numeric_address(const std::string& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(address.c_str(), nullptr, &hints, &found); error != 0)
    return failed(unusable(address, ::gai_strerror(error)));
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  int error = 0;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST];
    if (!can_bind(*one, error)) continue;
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, nullptr, 0,
                      NI_NUMERICHOST) == 0)
      return std::string(text);
  }
  return failed(unusable(address, std::strerror(error)));
}

struct Registry {
  platform::Mutex mutex{"gloo.devices"};
  // Keyed by process and address: a forked child must not use its parent's loop thread.
  std::map<std::pair<pid_t, std::string>, std::weak_ptr<::gloo::transport::Device>> devices
      LOCKSTEP_GUARDED_BY(mutex);
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

Result<std::shared_ptr<::gloo::transport::Device>> shared_device(const std::string& address) {
  Result<std::string> numeric = numeric_address(address);
  if (!numeric) return failed(std::move(numeric.error()));
  Registry& registered = registry();
  platform::MutexLock lock(registered.mutex);
  auto& entry = registered.devices[{::getpid(), *numeric}];
  if (auto device = entry.lock()) return device;
  const WithoutSigpipe guard;  // The loop inherits it, and writes for as long as the device lives.
  try {
    auto device = make_guarded_device(*numeric);
    entry = device;
    return device;
  } catch (const std::system_error& error) {
    return failed(no_thread("the event loop of Gloo's connections", error.what()));
  } catch (const std::exception& error) {
    return failed(unusable(address, readable_gloo_error(error.what())));
  }
}

namespace {

// The handler leaves the event set, so the loop finds it again at its next turn.
class Yield final : public ::gloo::transport::tcp::Handler {
 public:
  void handleEvents(int) override { ::sched_yield(); }
};

}  // namespace

EventLoop::EventLoop(const std::shared_ptr<::gloo::transport::Device>& device) {
  LOCKSTEP_CHECK(device != nullptr);
  static Yield yield;  // It outlives every loop.
  const auto tcp = std::dynamic_pointer_cast<::gloo::transport::tcp::Device>(device);
  if (tcp == nullptr) return;
  event_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE);
  if (event_ < 0) return;  // Connecting is slower then.
  try {
    tcp->registerDescriptor(event_, EPOLLIN, &yield);
  } catch (const std::exception&) {
    ::close(std::exchange(event_, -1));
    return;
  }
  close_loop_on_exec(event_);
}

// Closing removes the event from the loop without waiting for the loop. A copy in a forked child
// keeps the event registered, but no Hurry uses it any more.
EventLoop::~EventLoop() {
  if (event_ >= 0) ::close(event_);
}

EventLoop::Hurry::Hurry(const EventLoop& loop) : event_(loop.event_) {
  if (event_ < 0) return;
  const std::uint64_t one = 1;
  const ssize_t written = ::write(event_, &one, sizeof one);
  LOCKSTEP_CHECK_EQ(written, ssize_t{sizeof one});
}

EventLoop::Hurry::~Hurry() {
  if (event_ < 0) return;
  std::uint64_t one = 0;
  const ssize_t read = ::read(event_, &one, sizeof one);
  LOCKSTEP_CHECK_EQ(read, ssize_t{sizeof one});
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
