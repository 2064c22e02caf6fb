#include "reference/state.h"

#include <cassert>

#include "reference/arithmetic.h"

namespace lockstep::reference {
namespace {

constexpr std::uint64_t kAlignment = 64;  // of each tensor in a chunk

std::uint64_t scramble(std::uint64_t x, std::uint64_t with) {
  x = (x + with) * 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 29)) * 0xd6e8feb86659fd93U;
  return x ^ (x >> 32);
}

std::uint64_t cut(std::uint64_t bits, DType dtype) {
  return bits & (~std::uint64_t{0} >> (64 - 8 * size_of(dtype)));
}

}  // namespace

std::vector<StateTensor> state_tensors(const Program& program) {
  std::vector<StateTensor> tensors;
  std::vector<std::uint32_t> number_of(program.parameters.size());
  for (std::uint32_t i = 0; program.options.with_values && i < program.parameters.size(); ++i) {
    const Parameter& each = program.parameters[i];
    if (owner_of(program, i) != i) continue;
    assert(each.copy_of <= i);
    assert(is_original(program.parameters[i - each.copy_of]));
    number_of[i] = static_cast<std::uint32_t>(tensors.size());
    tensors.push_back({each.key, element_count(each), each.dtype, each.device, false, each.ignored,
                       number_of[i] - number_of[i - each.copy_of], each.reducer});
  }
  for (const Buffer& each : program.buffers)
    tensors.push_back({each.key, element_count(each.sizes), each.dtype, each.device, true,
                       each.ignored, each.copy_of});
  return tensors;
}

// A chunk holds tensors of one device, and closes when it reaches its limit.
std::vector<std::uint64_t> buffer_chunks(const Replicated& options,
                                         const std::vector<StateTensor>& tensors) {
  std::vector<std::uint64_t> chunks;
  std::uint32_t device = 0;
  bool is_open = false;
  for (const StateTensor& tensor : tensors) {
    assert(tensor.device < kMaxDevices);
    const std::uint64_t bytes = tensor.elements * size_of(tensor.dtype);
    if (!tensor.is_buffer || !is_broadcast(tensor) || bytes == 0) continue;
    if (!is_open || tensor.device != device) chunks.push_back(0);
    device = tensor.device;
    chunks.back() = (chunks.back() + kAlignment - 1) / kAlignment * kAlignment + bytes;
    is_open = chunks.back() < options.chunk_bytes;
  }
  return chunks;
}

std::uint64_t start_of_state(const Program& program, const StateTensor& tensor, std::uint32_t rank,
                             std::uint64_t element) {
  std::uint64_t x = scramble(program.key, tensor.key);
  x = scramble(x, rank + 1);
  return cut(scramble(x, element), tensor.dtype);
}

std::uint64_t after_forward(const Program& program, const StateTensor& tensor, std::uint32_t rank,
                            std::uint32_t step_key, std::uint32_t forward, std::uint64_t element,
                            std::uint64_t bits) {
  std::uint64_t x = scramble(start_of_state(program, tensor, rank, element), step_key);
  x = scramble(x, forward);
  return cut(scramble(x, bits), tensor.dtype);
}

std::uint64_t after_training(const StateTensor& tensor, std::uint32_t step_key,
                             std::uint64_t bits) {
  return cut(scramble(scramble(tensor.key, step_key), bits), tensor.dtype);
}

std::uint64_t hash_of_state(const std::vector<std::uint64_t>& bits) {
  std::uint64_t hash = bits.size();
  for (const std::uint64_t each : bits) hash = scramble(hash, each);
  return hash;
}

}  // namespace lockstep::reference
