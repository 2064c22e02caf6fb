#include "reference/model/module_state.h"

#include <cassert>
#include <utility>

namespace lockstep::reference {
namespace {

using Bits = std::vector<std::uint64_t>;

// The element with each index e becomes change(e).
template <class Change>
std::shared_ptr<const Bits> made_of(std::uint64_t elements, const Change& change) {
  const auto bits = std::make_shared<Bits>(elements);
  for (std::uint64_t e = 0; e < elements; ++e) (*bits)[e] = change(e);
  return bits;
}

}  // namespace

ModuleState initial_state(const Setting& setting, std::uint32_t rank) {
  ModuleState state;
  for (const StateTensor& tensor : setting.tensors)
    state.push_back(made_of(tensor.elements, [&](std::uint64_t element) {
      return start_of_state(setting.program, tensor, rank, element);
    }));
  return state;
}

ModuleState receive(const Setting& setting, ModuleState own, const ModuleState& root) {
  for (std::size_t t = 0; t < setting.tensors.size(); ++t)
    if (is_broadcast(setting.tensors[t])) own[t] = root[t];
  return own;
}

ModuleState receive_buffers(const Setting& setting, ModuleState own, const ModuleState& root) {
  for (std::size_t t = 0; t < setting.tensors.size(); ++t)
    if (is_broadcast(setting.tensors[t]) && setting.tensors[t].is_buffer) own[t] = root[t];
  return own;
}

ModuleState change_buffers(const Setting& setting, std::uint32_t rank, const Step& step,
                           ModuleState state) {
  assert(state.size() == setting.tensors.size());
  const std::size_t forwards = pass_of(step, rank).forwards.size();
  for (std::size_t t = 0; t < setting.tensors.size(); ++t) {
    const StateTensor& tensor = setting.tensors[t];
    if (!tensor.is_buffer) continue;
    assert(state[t]->size() == tensor.elements);
    state[t] = made_of(tensor.elements, [&](std::uint64_t element) {
      std::uint64_t bits = (*state[t])[element];
      for (std::uint32_t f = 0; f < forwards; ++f)
        bits = after_forward(setting.program, tensor, rank, step.key, f, element, bits);
      return bits;
    });
  }
  return state;
}

ModuleState train_values(const Setting& setting, std::uint32_t step_key, ModuleState state) {
  assert(state.size() == setting.tensors.size());
  for (std::size_t t = 0; t < setting.tensors.size(); ++t) {
    const StateTensor& tensor = setting.tensors[t];
    if (tensor.is_buffer) continue;
    state[t] = made_of(tensor.elements, [&](std::uint64_t element) {
      return after_training(tensor, step_key, (*state[t])[element]);
    });
  }
  return state;
}

std::vector<std::uint64_t> hashes_of(const ModuleState& state) {
  std::vector<std::uint64_t> hashes;
  for (const auto& bits : state) hashes.push_back(hash_of_state(*bits));
  return hashes;
}

}  // namespace lockstep::reference
