#include "properties/run/live_heap.h"

#include <cstddef>

// Of jemalloc, where the program is linked with it.
extern "C" int mallctl(const char* name, void* old, std::size_t* old_bytes, void* fresh,
                       std::size_t fresh_bytes) __attribute__((weak));

namespace lockstep::properties {
namespace {

// The counter of this thread that jemalloc keeps under the name, or one that stays 0.
const std::uint64_t* counter_of_thread(const char* name) {
  static constexpr std::uint64_t kNothing = 0;
  std::uint64_t* counter = nullptr;
  std::size_t bytes = sizeof counter;
  if (mallctl == nullptr || mallctl(name, &counter, &bytes, nullptr, 0) != 0) return &kNothing;
  return counter;
}

}  // namespace

std::int64_t live_heap_bytes() {
  thread_local const std::uint64_t* const allocated = counter_of_thread("thread.allocatedp");
  thread_local const std::uint64_t* const freed = counter_of_thread("thread.deallocatedp");
  return static_cast<std::int64_t>(*allocated - *freed);
}

}  // namespace lockstep::properties
