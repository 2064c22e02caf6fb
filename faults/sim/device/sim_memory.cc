#include "faults/sim/device/sim_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {
namespace {

constexpr std::align_val_t kAlignment{256};
constexpr std::size_t kLeastBytes = 64;

std::byte poison_at(std::size_t offset) {
  return static_cast<std::byte>(offset % 2 == 0 ? kPoison & 0xFF : kPoison >> 8);
}

}  // namespace

void poison(std::byte* data, std::size_t bytes) {
  std::fill_n(reinterpret_cast<std::uint16_t*>(data), bytes / sizeof kPoison, kPoison);
  if (bytes % sizeof kPoison != 0) data[bytes - 1] = poison_at(bytes - 1);
}

bool is_poison(std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != poison_at(i)) return false;
  return true;
}

std::string Block::describe(const Access& access) const {
  const auto range = [&](const std::string& name, std::size_t start, std::size_t end) {
    return name + " [" + std::to_string(access.begin - start) + ", " +
           std::to_string(std::min(access.end, end) - start) + ")";
  };
  const bool is_whole = access.begin == 0 && access.end == capacity;  // a release
  for (const Label& label : labels)
    if (label.allocation == access.allocation && label.begin <= access.begin &&
        (is_whole || access.end <= label.end))
      return range(label.name, label.begin, label.end);
  const std::string name = is_pinned ? "pinned memory " : "allocation ";
  return range(name + std::to_string(access.allocation), 0,
               access.allocation == number ? bytes : capacity);
}

SimMemory::~SimMemory() {
  for (const auto& [data, block] : blocks_) ::operator delete(block->data, kAlignment);
}

Block* SimMemory::find(const std::byte* data) {
  auto found = blocks_.upper_bound(data);
  if (found == blocks_.begin()) return nullptr;
  Block& block = *(--found)->second;
  return data < block.data + block.capacity ? &block : nullptr;
}

// Takes the block that was given back last of those that fit, or a new one.
template <class Fits>
Block* SimMemory::take(std::size_t bytes, std::size_t capacity, const Fits& fits) {
  const auto spare = std::find_if(free_.rbegin(), free_.rend(), fits);
  Block* const block = spare != free_.rend() ? *spare : add(capacity);
  if (block == nullptr) return nullptr;
  if (spare != free_.rend()) free_.erase(std::next(spare).base());
  LOCKSTEP_CHECK(!block->is_live);
  block->is_live = true;
  block->bytes = bytes;
  block->number = allocations_++;
  return block;
}

Block* SimMemory::take(std::size_t bytes, std::uint64_t home, std::uint64_t reclaimed) {
  const std::size_t capacity = std::bit_ceil(std::max(bytes, kLeastBytes));
  const auto fits = [&](const Block* block) {
    return !block->is_pinned && block->capacity == capacity && block->home == home &&
           block->free_from <= reclaimed;
  };
  Block* const block = take(bytes, capacity, fits);
  if (block == nullptr) return nullptr;
  block->home = home;
  block->used_by = 0;
  return block;
}

Block* SimMemory::take_pinned(std::size_t bytes) {
  const std::size_t capacity = std::bit_ceil(std::max(bytes, kLeastBytes));
  Block* const block = take(bytes, capacity, [&](const Block* each) {
    return each->is_pinned && each->capacity == capacity;
  });
  if (block != nullptr) block->is_pinned = true;
  return block;
}

void SimMemory::give_back(Block& block) {
  LOCKSTEP_CHECK(block.is_live);
  block.is_live = false;
  free_.push_back(&block);
}

Block* SimMemory::add(std::size_t capacity) {
  void* memory = ::operator new(capacity, kAlignment, std::nothrow);
  if (memory == nullptr) return nullptr;
  auto block = std::make_unique<Block>();
  block->data = static_cast<std::byte*>(memory);
  block->capacity = capacity;
  poison(block->data, capacity);
  Block* const added = block.get();
  blocks_.emplace(added->data, std::move(block));
  return added;
}

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
