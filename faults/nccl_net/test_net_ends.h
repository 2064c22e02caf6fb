// Helpers for the tests of this folder, which see the plug-in as NCCL does. They load it with
// dlopen() and drive it through one of its tables. Both ends of a connection are in one process
// unless a test says otherwise.
#pragma once

#include <dirent.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "faults/nccl_net/lockstep_net.h"
#include "faults/nccl_net/net_plan.h"
#include "faults/nccl_net/net_tables.h"

namespace lockstep::faults::net::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// Tries again until `is_true` returns true or the limit has passed. Returns the last value.
inline bool eventually(const std::function<bool()>& is_true, milliseconds limit = seconds(20)) {
  const auto deadline = steady_clock::now() + limit;
  while (!is_true()) {
    if (steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

inline std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  std::uint32_t state = seed * 2654435761u + 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

inline int open_descriptors() {
  int count = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

// Everything that the plug-in logged, at all levels.
class Logged {
 public:
  static void log(int level, unsigned long, const char*, int, const char* format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    std::lock_guard lock(mutex());
    text() += (level == kLogWarning ? "WARN " : "INFO ") + std::string(line) + "\n";
  }
  static std::string all() {
    std::lock_guard lock(mutex());
    return text();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex only;
    return only;
  }
  static std::string& text() {
    static std::string only;
    return only;
  }
};

// Returns a name for a plan that no other test uses at the same time.
inline std::string plan_name() {
  static int count = 0;
  return "/lockstep-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

struct Told {
  int code = -1;
  int size = -1;  // -1 unless the request is done
  bool is_done() const { return size >= 0; }
};

// Both ends of one connection.
struct Pair {
  void* listener = nullptr;
  void* sender = nullptr;
  void* receiver = nullptr;
};

// The library, called through one of its tables.
class Plugin {
 public:
  explicit Plugin(int version) : version_(version) {
    library_ = ::dlopen(LOCKSTEP_NET_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      std::fprintf(stderr, "%s\n", ::dlerror());
      std::abort();
    }
    v6_ = static_cast<const TableV6*>(::dlsym(library_, "ncclNetPlugin_v6"));
    v11_ = static_cast<const TableV11*>(::dlsym(library_, "ncclNetPlugin_v11"));
    if (v6_ == nullptr || v11_ == nullptr) std::abort();
  }
  ~Plugin() {
    for (void* context : contexts_) v11_->finalize(context);
  }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const TableV6& v6() const { return *v6_; }
  const TableV11& v11() const { return *v11_; }

  template <typename Function>
  Function* symbol(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(library_, name));
  }
  lockstep_net_counts counts() const {
    lockstep_net_counts out;
    symbol<void(lockstep_net_counts*)>("lockstep_net_count")(&out);
    return out;
  }
  std::string last_warning() const {
    char text[1024];
    symbol<std::uint64_t(char*, std::uint64_t)>("lockstep_net_last_warning")(text, sizeof text);
    return text;
  }

  // Initializes as that rank; later objects belong to it.
  int become(int rank) {
    ::setenv(LOCKSTEP_NET_RANK, std::to_string(rank).c_str(), 1);
    return init();
  }
  int init() {
    if (version_ == 6) return v6_->init(&Logged::log);
    context_ = nullptr;
    ConfigV11 config{-1};
    const int code = v11_->init(&context_, 7, &config, &Logged::log, nullptr);
    if (context_ != nullptr) contexts_.push_back(context_);
    return code;
  }
  void* context() const { return context_; }

  int listen(void* handle, void** listener) {
    return version_ == 6 ? v6_->listen(0, handle, listener)
                         : v11_->listen(context_, 0, handle, listener);
  }
  int connect(void* handle, void** sender) {
    return version_ == 6 ? v6_->connect(0, handle, sender)
                         : v11_->connect(context_, 0, handle, sender, nullptr);
  }
  int accept(void* listener, void** receiver) {
    return version_ == 6 ? v6_->accept(listener, receiver)
                         : v11_->accept(listener, receiver, nullptr);
  }
  int isend(void* sender, const void* data, std::size_t size, void** request) {
    void* bytes = const_cast<void*>(data);
    return version_ == 6 ? v6_->isend(sender, bytes, static_cast<int>(size), 0, nullptr, request)
                         : v11_->isend(sender, bytes, size, 0, nullptr, nullptr, request);
  }
  int irecv(void* receiver, void* data, std::size_t size, void** request) {
    int tag = 0;
    void* memory = nullptr;
    if (version_ == 6) {
      int bytes = static_cast<int>(size);
      return v6_->irecv(receiver, 1, &data, &bytes, &tag, &memory, request);
    }
    *request = reinterpret_cast<void*>(1);  // NCCL marks receives of LL protocols so
    return v11_->irecv(receiver, 1, &data, &size, &tag, &memory, nullptr, request);
  }
  Told test(void* request) {
    int done = 0;
    int size = -1;
    const int code =
        version_ == 6 ? v6_->test(request, &done, &size) : v11_->test(request, &done, &size);
    return {code, done != 0 ? size : -1};
  }
  // Tests until the request is done or fails.
  Told wait(void* request, milliseconds limit = seconds(20)) {
    Told outcome;
    eventually(
        [&] {
          outcome = test(request);
          return outcome.code != kSuccess || outcome.is_done();
        },
        limit);
    return outcome;
  }
  int close_send(void* sender) { return v6_->close_send(sender); }
  int close_receive(void* receiver) { return v6_->close_receive(receiver); }
  int close_listen(void* listener) { return v6_->close_listen(listener); }

  // Connects rank `from` to rank `to`. The sender is null if that failed.
  Pair link(int from, int to) {
    Pair pair;
    char handle[kHandleBytes];
    EXPECT_EQ(become(to), kSuccess);
    EXPECT_EQ(listen(handle, &pair.listener), kSuccess);
    EXPECT_EQ(become(from), kSuccess);
    eventually([&] {
      if (pair.sender == nullptr) {
        EXPECT_EQ(connect(handle, &pair.sender), kSuccess);
      }
      if (pair.receiver == nullptr) {
        EXPECT_EQ(accept(pair.listener, &pair.receiver), kSuccess);
      }
      return pair.sender != nullptr && pair.receiver != nullptr;
    });
    return pair;
  }
  void close(const Pair& pair) {
    EXPECT_EQ(close_send(pair.sender), kSuccess);
    EXPECT_EQ(close_receive(pair.receiver), kSuccess);
    EXPECT_EQ(close_listen(pair.listener), kSuccess);
  }

  // Sends `data` and receives it into a buffer of `room` bytes. Returns what test() reported at
  // both ends.
  struct Carried {
    Told sent;
    Told received;
    std::vector<std::byte> data;
  };
  Carried carry(const Pair& pair, const std::vector<std::byte>& data, std::size_t room) {
    Carried carried;
    carried.data.resize(room);
    void* out = nullptr;
    void* in = nullptr;
    eventually([&] {
      carried.received.code = irecv(pair.receiver, carried.data.data(), room, &in);
      return in != nullptr || carried.received.code != kSuccess;
    });
    eventually([&] {
      carried.sent.code = isend(pair.sender, data.data(), data.size(), &out);
      return out != nullptr || carried.sent.code != kSuccess;
    });
    eventually([&] {
      if (out != nullptr && carried.sent.code == kSuccess && !carried.sent.is_done())
        carried.sent = test(out);
      if (in != nullptr && carried.received.code == kSuccess && !carried.received.is_done())
        carried.received = test(in);
      const bool is_over = carried.sent.is_done() || carried.sent.code != kSuccess;
      return is_over && (carried.received.is_done() || carried.received.code != kSuccess);
    });
    return carried;
  }
  // Sends one message and expects it to arrive unchanged.
  void expect_carried(const Pair& pair, const std::vector<std::byte>& data) {
    const Carried carried = carry(pair, data, data.size());
    EXPECT_EQ(carried.sent.code, kSuccess) << last_warning();
    EXPECT_EQ(carried.received.code, kSuccess) << last_warning();
    EXPECT_EQ(carried.received.size, static_cast<int>(data.size()));
    EXPECT_TRUE(carried.data == data);
  }

 private:
  int version_;
  void* library_ = nullptr;
  const TableV6* v6_ = nullptr;
  const TableV11* v11_ = nullptr;
  void* context_ = nullptr;  // of version 11, the newest
  std::vector<void*> contexts_;
};

// Each test runs with both tables, and without a plan unless it creates one.
class NcclNetTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { ::unsetenv(LOCKSTEP_NET_PLAN); }

  Plugin plugin_{GetParam()};
};

inline std::string table_name(const ::testing::TestParamInfo<int>& info) {
  return "v" + std::to_string(info.param);
}

}  // namespace lockstep::faults::net::testing
