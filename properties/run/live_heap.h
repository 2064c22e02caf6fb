// live_heap_bytes(): how many bytes this thread has allocated and not freed, as jemalloc counts
// them. Differences alone mean something, and only where all that is allocated in between is freed
// on this thread, too, as in the simulator. glibc's own counts are of no use for this, as they take
// what a cache of freed memory holds for allocated.
// Threads: any. Failure: none. In a program without jemalloc it is always 0.
#pragma once

#include <cstdint>

namespace lockstep::properties {

std::int64_t live_heap_bytes();

}  // namespace lockstep::properties
