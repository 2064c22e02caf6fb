// Memory is what the played GPU has handed out: device memory, which lies in the host's, and pinned
// memory. New memory is poisoned, so that a read of what nothing has written shows; blocks of 256
// MiB or more are not, and take no memory until they are used.
//
// Threads: any. Failure: null for an allocation that the system refuses.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace lockstep::played {

enum class MemoryKind { kDevice, kPinned };

class Memory {
 public:
  std::byte* allocate(MemoryKind kind, std::size_t bytes);
  // It works as memset() does. A large allocation that is cleared takes no memory until it is used.
  void fill(std::byte* data, int value, std::size_t bytes);
  // Returns whether such an allocation begins there.
  bool release(const void* data);
  bool owns(const void* data);
  MemoryKind kind_of(const void* data);  // of what it owns
  // Bytes from the beginning of the allocation that holds `data`; sets its beginning and its size.
  bool find(const void* data, std::byte** begin, std::size_t* bytes);
  std::size_t allocated_bytes();

 private:
  struct Block {
    std::size_t bytes = 0;
    MemoryKind kind = MemoryKind::kDevice;
  };
  const std::pair<std::byte* const, Block>* block_of(const void* data) const;

  std::mutex mutex_;
  std::map<std::byte*, Block> blocks_;
};

}  // namespace lockstep::played
