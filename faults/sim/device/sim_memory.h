// SimMemory: the memory of a simulated device, in blocks that are cached by the stream they belong
// to (their home), as the caching allocators of GPUs do it. A block that goes back is at once free
// for the next allocation of its home, whatever other streams still do with it, unless those were
// noted as users: then it waits until they are done. Blocks of a size class are taken last in,
// first out, so that memory comes back as soon as it can.
//
// New and released memory holds kPoison in every 16 bits: a NaN in all floating dtypes, a
// signalling one in float64. (No pattern signals in all of them.)
//
// Threads: none; the device's mutex guards it. Ownership: blocks live as long as this.
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
  std::size_t bytes = 0;     // that were asked for
  std::uint64_t number = 0;  // of the allocation that has it, or had it last
  bool is_live = false;
  bool is_pinned = false;       // memory of the host
  std::uint64_t home = 0;       // a stream's handle
  std::uint64_t used_by = 0;    // the bits of other streams' handles
  std::uint64_t free_from = 0;  // the point of the reclaiming line that has to be passed; 0: none
  VectorClock released;         // what the release came after, itself included
  Access release;
  std::vector<Label> labels;  // of former allocations, too
  AccessHistory history;

  // Words for what is accessed.
  std::string describe(const Access& access) const;
};

class SimMemory {
 public:
  SimMemory() = default;
  ~SimMemory();
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;

  // The block whose memory `data` is in, live or not; null for foreign memory.
  Block* find(const std::byte* data);

  // A block for `bytes`, of `home`; of those with noted users one whose free_from is not beyond
  // `reclaimed`. Null when the host has no memory left.
  Block* take(std::size_t bytes, std::uint64_t home, std::uint64_t reclaimed);
  Block* take_pinned(std::size_t bytes);
  // The next take() may have it, subject to free_from.
  void give_back(Block& block);

 private:
  Block* add(std::size_t capacity);

  std::map<const std::byte*, std::unique_ptr<Block>> blocks_;
  std::vector<Block*> free_;  // the last one that came is the first to go
  std::uint64_t allocations_ = 0;
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
