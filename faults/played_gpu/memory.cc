#include "faults/played_gpu/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>

namespace lockstep::played {
namespace {

constexpr std::size_t kAlignment = 4096;
constexpr int kPoison = 0xff;  // floating-point numbers of these bytes are NaNs
// NCCL reserves 512 MiB for itself when it makes a communicator, clears it, and uses little of it.
// To write all of that took half of the processor time of a case.
constexpr std::size_t kReserve = std::size_t{256} << 20;

}  // namespace

std::byte* Memory::allocate(MemoryKind kind, std::size_t bytes) {
  const std::size_t whole = (bytes + kAlignment) / kAlignment * kAlignment;
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole));
  if (data == nullptr) return nullptr;
  if (bytes < kReserve) std::memset(data, kPoison, bytes);
  const std::lock_guard lock(mutex_);
  blocks_[data] = {bytes, kind};
  return data;
}

void Memory::fill(std::byte* data, int value, std::size_t bytes) {
  const bool is_reserve = value == 0 && bytes >= kReserve && bytes % kAlignment == 0 &&
                          reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0 && owns(data);
  // The system gives pages of zeros when they are used next.
  if (is_reserve && ::madvise(data, bytes, MADV_DONTNEED) == 0) return;
  std::memset(data, value, bytes);
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
