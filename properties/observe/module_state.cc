#include "properties/observe/module_state.h"

#include <cstring>

#include "properties/observe/graph_builder.h"
#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// Calls f(e, at) for each element, in row-major order; `at` is its position in memory, in elements.
template <class F>
void for_each_element(const Shape& shape, F&& f) {
  const std::int64_t count = shape.elements();
  for (std::int64_t e = 0; e < count; ++e) {
    std::int64_t at = 0;
    std::int64_t rest = e;
    for (int d = shape.dims - 1; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      at += rest % shape.sizes[i] * shape.strides[i];
      rest /= shape.sizes[i];
    }
    f(static_cast<std::size_t>(e), static_cast<std::size_t>(at));
  }
}

std::uint64_t load(const std::byte* memory, std::size_t width) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, memory, width);  // little-endian, as every supported machine
  return bits;
}

}  // namespace

LaneState::LaneState(const reference::Program& program, std::uint32_t rank,
                     const std::vector<Ref<Parameter>>& parameters,
                     const std::vector<Device*>& devices)
    : program_(program),
      rank_(rank),
      tensors_(reference::state_tensors(program)),
      devices_(devices) {
  for (std::uint32_t i = 0; program.options.with_values && i < parameters.size(); ++i) {
    if (reference::owner_of(program, i) != i) continue;
    parameters[i]->set_value(make(tensors_[parameters_.size()], parameters[i]->shape()));
    parameters_.push_back(parameters[i]);
  }
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const reference::Buffer& record = program.buffers[b];
    buffers_.push_back(make_ref<Buffer>(
        "b" + std::to_string(b),
        make(tensors_[parameters_.size() + b], shape_of(record.sizes, record.column_major))));
  }
  start();
}

Tensor LaneState::make(const reference::StateTensor& tensor, const Shape& shape) const {
  Result<Tensor> made = until_given(
      [&] { return Tensor::empty(*devices_[tensor.device], dtype_of(tensor.dtype), shape); });
  LOCKSTEP_CHECK(made.has_value());
  return std::move(*made);
}

const Tensor& LaneState::value(std::size_t tensor) const {
  return tensor < parameters_.size() ? parameters_[tensor]->value()
                                     : buffers_[tensor - parameters_.size()]->value();
}

// Writes one number of `bits` for each element, in row-major order.
void LaneState::write(const Tensor& tensor, const std::vector<std::uint64_t>& bits) {
  const std::size_t width = size_of(tensor.dtype());
  const Status status = until_given([&] {
    return memory_.fill(tensor, [&](std::byte* memory) {
      for_each_element(tensor.shape(), [&](std::size_t e, std::size_t at) {
        std::memcpy(memory + at * width, &bits[e], width);
      });
    });
  });
  LOCKSTEP_CHECK(status.ok());
}

std::vector<std::uint64_t> LaneState::read(const Tensor& tensor) {
  const std::size_t width = size_of(tensor.dtype());
  const std::byte* const memory = memory_.read(tensor);
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(tensor.elements()));
  for_each_element(tensor.shape(), [&](std::size_t e, std::size_t at) {
    bits[e] = load(memory + at * width, width);
  });
  return bits;
}

void LaneState::start() {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    std::vector<std::uint64_t> bits(static_cast<std::size_t>(value(t).elements()));
    for (std::size_t e = 0; e < bits.size(); ++e)
      bits[e] = reference::start_of_state(program_, tensors_[t], rank_, e);
    write(value(t), bits);
  }
}

void LaneState::run_forward(std::uint32_t step_key, std::uint32_t forward) {
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    const std::size_t t = parameters_.size() + b;
    const Tensor old = buffers_[b]->value();
    if (program_.buffers[b].replaced) buffers_[b]->set_value(make(tensors_[t], old.shape()));
    std::vector<std::uint64_t> bits = read(old);
    for (std::size_t e = 0; e < bits.size(); ++e)
      bits[e] =
          reference::after_forward(program_, tensors_[t], rank_, step_key, forward, e, bits[e]);
    write(value(t), bits);
  }
}

void LaneState::train(std::uint32_t step_key) {
  for (std::size_t t = 0; t < parameters_.size(); ++t) {
    std::vector<std::uint64_t> bits = read(value(t));
    for (std::uint64_t& each : bits) each = reference::after_training(tensors_[t], step_key, each);
    write(value(t), bits);
  }
}

void LaneState::record(std::vector<std::uint64_t>& hashes) {
  memory_.settle();
  for (std::size_t t = 0; t < tensors_.size(); ++t)
    hashes.push_back(reference::hash_of_state(read(value(t))));
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
