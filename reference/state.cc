#include "reference/state.h"

#include "reference/arithmetic.h"

namespace lockstep::reference {
namespace {

constexpr std::uint64_t kAlignment = 64;

std::uint64_t scramble(std::uint64_t x, std::uint64_t with) {
  x = (x + with) * 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 29)) * 0xd6e8feb86659fd93U;
  return x ^ (x >> 32);
}

std::uint64_t cut(std::uint64_t bits, std::uint32_t bytes) {
  return bytes == 8 ? bits : bits & ((std::uint64_t{1} << (8 * bytes)) - 1);
}

}  // namespace

std::vector<StateTensor> state_tensors(const Program& program) {
  std::vector<StateTensor> tensors;
  std::vector<std::uint32_t> number_of(program.parameters.size());
  for (std::uint32_t i = 0; program.options.with_values && i < program.parameters.size(); ++i) {
    const Parameter& each = program.parameters[i];
    if (owner_of(program, i) != i) continue;
    number_of[i] = static_cast<std::uint32_t>(tensors.size());
    tensors.push_back({each.key, element_count(each), each.dtype, size_of(each.dtype), each.device,
                       false, each.ignored, number_of[i] - number_of[i - each.copy_of],
                       each.reducer});
  }
  for (const Buffer& each : program.buffers)
    tensors.push_back({each.key, element_count(each.sizes), each.dtype, size_of(each.dtype),
                       each.device, true, each.ignored, each.copy_of});
  return tensors;
}

std::uint64_t start_of_state(const Program& program, const StateTensor& tensor, std::uint32_t rank,
                             std::uint64_t element) {
  std::uint64_t x = scramble(program.key, tensor.key);
  x = scramble(x, rank + 1);
  return cut(scramble(x, element), tensor.element_bytes);
}

std::uint64_t after_forward(const Program& program, const StateTensor& tensor, std::uint32_t rank,
                            std::uint32_t step_key, std::uint32_t forward, std::uint64_t element,
                            std::uint64_t bits) {
  std::uint64_t x = scramble(start_of_state(program, tensor, rank, element), step_key);
  x = scramble(x, forward);
  return cut(scramble(x, bits), tensor.element_bytes);
}

std::uint64_t after_training(const StateTensor& tensor, std::uint32_t step_key,
                             std::uint64_t bits) {
  return cut(scramble(scramble(tensor.key, step_key), bits), tensor.element_bytes);
}

std::uint64_t hash_of_state(const std::vector<std::uint64_t>& bits) {
  std::uint64_t hash = bits.size();
  for (const std::uint64_t each : bits) hash = scramble(hash, each);
  return hash;
}

States::States(const Program& program) : program_(program), tensors_(state_tensors(program)) {
  bits_.resize(program.world * tensors_.size());
}

void States::begin(const std::vector<std::uint32_t>& ranks) {
  for (const std::uint32_t rank : ranks) {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      std::vector<std::uint64_t>& here = bits(rank, t);
      here.resize(tensors_[t].elements);
      for (std::uint64_t e = 0; e < here.size(); ++e)
        here[e] = start_of_state(program_, tensors_[t], rank, e);
    }
  }
  broadcast(ranks, ranks.front(), false);
}

void States::broadcast_buffers(const std::vector<std::uint32_t>& ranks, std::uint32_t root) {
  broadcast(ranks, root, true);
}

void States::broadcast_all(const std::vector<std::uint32_t>& ranks, std::uint32_t root) {
  broadcast(ranks, root, false);
}

void States::train(std::uint32_t rank, std::uint32_t step_key) {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    if (tensors_[t].is_buffer) continue;
    for (std::uint64_t& each : bits(rank, t)) each = after_training(tensors_[t], step_key, each);
  }
}

void States::broadcast(const std::vector<std::uint32_t>& ranks, std::uint32_t root,
                       bool buffers_only) {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const StateTensor& tensor = tensors_[t];
    if (tensor.ignored || tensor.copy_of > 0 || (buffers_only && !tensor.is_buffer)) continue;
    for (const std::uint32_t rank : ranks) bits(rank, t) = bits(root, t);
  }
}

void States::copy_to_replicas(std::uint32_t rank, bool with_buffers) {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const StateTensor& tensor = tensors_[t];
    if (tensor.copy_of == 0 || tensor.ignored || (tensor.is_buffer && !with_buffers)) continue;
    bits(rank, t) = bits(rank, t - tensor.copy_of);
  }
}

void States::run_forward(std::uint32_t rank, std::uint32_t step_key, std::uint32_t forward) {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    if (!tensors_[t].is_buffer) continue;
    std::vector<std::uint64_t>& here = bits(rank, t);
    for (std::uint64_t e = 0; e < here.size(); ++e)
      here[e] = after_forward(program_, tensors_[t], rank, step_key, forward, e, here[e]);
  }
}

std::vector<std::uint64_t> States::buffer_chunks() const {
  std::vector<std::uint64_t> chunks;
  std::uint32_t device = 0;
  bool is_open = false;
  for (const StateTensor& tensor : tensors_) {
    const std::uint64_t bytes = tensor.elements * tensor.element_bytes;
    if (!tensor.is_buffer || tensor.ignored || tensor.copy_of > 0 || bytes == 0) continue;
    if (!is_open || tensor.device != device) chunks.push_back(0);
    device = tensor.device;
    const std::uint64_t offset = (chunks.back() + kAlignment - 1) / kAlignment * kAlignment;
    chunks.back() = offset + bytes;
    is_open = chunks.back() < program_.options.chunk_bytes;
  }
  return chunks;
}

void States::record(std::uint32_t rank, std::vector<std::uint64_t>& hashes) const {
  hashes.clear();
  for (std::size_t t = 0; t < tensors_.size(); ++t)
    hashes.push_back(hash_of_state(bits_[rank * tensors_.size() + t]));
}

}  // namespace lockstep::reference
