#include "reference/model/replicas.h"

#include <cassert>

#include "reference/arithmetic.h"

namespace lockstep::reference {

std::optional<Elements> sum_replicas(const Setting& setting, std::uint32_t parameter,
                                     const Gradients& gradients) {
  std::optional<Elements> sum;
  assert(!setting.roles.replicas[parameter].empty());
  for (const std::uint32_t part : setting.roles.replicas[parameter]) {
    if (!gradients[part].tensor) continue;
    const Elements& values = gradients[part].tensor->values;
    assert(values.size() == value_count(setting.parameter(parameter)));
    if (!sum)
      sum = values;
    else
      add_values(setting.parameter(parameter).dtype, sum->data(), values.data(), values.size());
  }
  return sum;
}

ModuleState copy_state_to_replicas(const Setting& setting, bool with_buffers, ModuleState state) {
  for (std::size_t t = 0; t < setting.tensors.size(); ++t) {
    const StateTensor& tensor = setting.tensors[t];
    if (tensor.copy_of == 0 || tensor.ignored || (tensor.is_buffer && !with_buffers)) continue;
    state[t] = state[t - tensor.copy_of];
  }
  return state;
}

}  // namespace lockstep::reference
