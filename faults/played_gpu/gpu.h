// Gpu is the one played device of this process, behind the CUDA functions of runtime.cc and
// driver.cc: its memory, its default stream, the NCCL whose kernels it plays, and why it refused
// something.
//
// Threads: any. Ownership: it is never destroyed, because NCCL has threads that outlast main().
// Failure: what is not played is refused with a text, which CUDA's error functions return.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "faults/played_gpu/layout.h"
#include "faults/played_gpu/memory.h"
#include "faults/played_gpu/queue.h"
#include "faults/played_gpu/symbols.h"
#include "reducer/base/status.h"

namespace lockstep::played {

// CUDA's error codes, of the runtime and of the driver alike.
constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kNotReady = 600;
constexpr int kNotSupported = 801;

// The NCCL of this process.
struct Nccl {
  Layout layout;
  std::span<const int> row_to_id;
  const std::byte* load_address = nullptr;
  Symbols symbols;
};

class Gpu {
 public:
  static Gpu& one();

  Memory& memory() { return memory_; }
  // A null stream is the default one.
  NativeStream& stream(void* native);
  bool is_own(const NativeStream& stream) const;  // a Queue of this device
  // The host's memory behind an address that a caller of the stream uses.
  std::byte* reach(NativeStream& stream, const std::byte* address);

  void use(Nccl nccl);
  const Nccl* nccl() const { return nccl_; }  // null before use()

  // Remembers the text, and returns kNotSupported.
  int refuse(const std::string& text);
  const char* last_refusal() const;

 private:
  Gpu() : default_(Queue::make()), own_submit_(default_->submit) {}

  Memory memory_;
  Queue* const default_;
  void (*const own_submit_)(void*, void (*)(void*), void*);
  const Nccl* nccl_ = nullptr;
  mutable std::mutex mutex_;
  const std::string* refusal_ = nullptr;  // never freed: callers keep the text
};

// The function of that name; null if it is not played.
const void* runtime_function(const std::string& name);
void* driver_function(const std::string& name);

// The device's attributes, as CUDA numbers them.
int attribute(int which);
std::string bus_id();

}  // namespace lockstep::played
