#include "faults/played_gpu/memory.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>

namespace lockstep::played {
namespace {

constexpr std::size_t kAlignment = 4096;
constexpr int kPoison = 0xff;  // floating-point numbers of these bytes are NaNs

}  // namespace

std::byte* Memory::allocate(MemoryKind kind, std::size_t bytes) {
  const std::size_t whole = (bytes + kAlignment) / kAlignment * kAlignment;
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole));
  if (data == nullptr) return nullptr;
  std::memset(data, kPoison, bytes);
  const std::lock_guard lock(mutex_);
  blocks_[data] = {bytes, kind};
  return data;
}

bool Memory::release(const void* data) {
  {
    const std::lock_guard lock(mutex_);
    if (blocks_.erase(static_cast<std::byte*>(const_cast<void*>(data))) == 0) return false;
  }
  std::free(const_cast<void*>(data));
  return true;
}

const std::pair<std::byte* const, Memory::Block>* Memory::block_of(const void* data) const {
  auto* const at = static_cast<std::byte*>(const_cast<void*>(data));
  const auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return nullptr;
  const auto block = std::prev(next);
  return std::less<>()(at, block->first + block->second.bytes + 1) ? &*block : nullptr;
}

bool Memory::owns(const void* data) {
  const std::lock_guard lock(mutex_);
  return block_of(data) != nullptr;
}

MemoryKind Memory::kind_of(const void* data) {
  const std::lock_guard lock(mutex_);
  const auto* const block = block_of(data);
  return block == nullptr ? MemoryKind::kDevice : block->second.kind;
}

bool Memory::find(const void* data, std::byte** begin, std::size_t* bytes) {
  const std::lock_guard lock(mutex_);
  const auto* const block = block_of(data);
  if (block == nullptr) return false;
  *begin = block->first;
  *bytes = block->second.bytes;
  return true;
}

std::size_t Memory::allocated_bytes() {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const auto& [data, block] : blocks_) sum += block.bytes;
  return sum;
}

}  // namespace lockstep::played
