// live_heap_bytes(): how much memory this thread has allocated and nobody has freed, as far as the
// allocator tells: jemalloc for this thread, glibc for the process. Differences alone mean
// something, and only where no other thread allocates or frees meanwhile, as in the simulator.
// Threads: any. It fails nowhere: without either allocator, as under a sanitizer, it never changes.
#pragma once

#include <cstdint>

namespace lockstep::properties {

std::int64_t live_heap_bytes();

}  // namespace lockstep::properties
