// SimMemory: the memory of a simulated device. Blocks are cached by the stream they belong to
// (their home), as the caching allocators of GPUs do. A block that is returned is at once free for
// the next allocation of its home, whatever other streams still do with it. If such streams were
// recorded as users, it becomes free when they are done. The blocks of a size class are used last
// in, first out, so that memory is reused as soon as possible.
//
// New and released memory holds kPoison in every 16 bits. This is a NaN in all floating dtypes, and
// a signalling NaN in float64. (No pattern is signalling in all of them.)
//
// Threads: the device's mutex guards it. Ownership: the blocks live as long as this object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "faults/sim/device/access_history.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

constexpr std::uint16_t kPoison = 0x7FF4;
void poison(std::byte* data, std::size_t bytes);
bool is_poison(std::span<const std::byte> bytes);

struct Block {
  struct Label {
    std::uint64_t allocation = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::string name;
  };

  std::byte* data = nullptr;
  std::size_t capacity = 0;
  std::size_t bytes = 0;     // the requested size
  std::uint64_t number = 0;  // the number of its current or last allocation
  bool is_live = false;
  bool is_pinned = false;     // memory of the host
  std::uint64_t home = 0;     // a stream's handle
  std::uint64_t used_by = 0;  // a bit mask of other streams' handles
  // The point that the reclaiming line must have passed before the block is free; 0 if there is
  // none.
  std::uint64_t free_from = 0;
  VectorClock released;  // what the release came after, the release included
  Access release;
  std::vector<Label> labels;  // also those of former allocations
  AccessHistory history;

  // Describes in words what `access` accesses.
  std::string describe(const Access& access) const;
};

class SimMemory {
 public:
  SimMemory() = default;
  ~SimMemory();
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;

  // Returns the block whose memory contains `data`, live or not; null for foreign memory.
  Block* find(const std::byte* data);

  // Returns a block for `bytes`, of `home`. A block with recorded users qualifies only if its
  // free_from is not beyond `reclaimed`. Returns null if the host has no memory left.
  Block* take(std::size_t bytes, std::uint64_t home, std::uint64_t reclaimed);
  Block* take_pinned(std::size_t bytes);
  // Makes the block available for the next take(), subject to free_from.
  void give_back(Block& block);

 private:
  Block* add(std::size_t capacity);
  template <class Fits>
  Block* take(std::size_t bytes, std::size_t capacity, const Fits& fits);

  std::map<const std::byte*, std::unique_ptr<Block>> blocks_;
  std::vector<Block*> free_;  // last in, first out
  std::uint64_t allocations_ = 0;
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
