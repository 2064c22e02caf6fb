#include "properties/subject/torch/model/parameter_memory.h"

#include "reference/arithmetic.h"
#include "reference/values.h"

namespace lockstep::properties::torch_model {

using namespace reference;  // NOLINT: the vocabulary of programs

ParameterMemory::ParameterMemory(const Program& program) : program_(program) {
  places.resize(program.parameters.size());
  for (std::uint32_t i = 0; i < program.parameters.size(); ++i) {
    const std::uint32_t owner = owner_of(program, i);
    owners.push_back(program.parameters[owner].frozen ? kNotTrained : owner);
    if (owners[i] != i) continue;
    trained.push_back(i);
    const Parameter& parameter = program.parameters[i];
    if (is_reduced(parameter)) parts.push_back(i);
    if (is_reduced(parameter) && parameter.copy_of == 0) reduced.push_back(i);
    places[i].start = total;
    places[i].count = parameter.sparse ? 0 : value_count(parameter);
    total += places[i].count;
    for (std::uint64_t value = 0; value < places[i].count; ++value)
      memory_of_.push_back(static_cast<std::uint32_t>(row_major_to_memory(parameter, value)));
  }
}

void ParameterMemory::add_tensor(const Event& event, std::uint32_t rank, std::uint32_t step_key,
                                 double* sums) {
  const Parameter& parameter = program_.parameters[event.parameter];
  const Place& place = places[event.parameter];
  const UseValues values(program_, parameter, rank, step_key, event.node_key);
  if (arrived_.size() < place.count) arrived_.resize(place.count);
  double* sum = sums + place.start;
  double* tensor = event.first ? sum : arrived_.data();
  const std::uint32_t* memory_of = memory_of_.data() + place.start;
  for (std::size_t e = 0; e < place.count; ++e) tensor[memory_of[e]] = values.at(e);
  multiply_values(parameter.dtype, tensor, event.scalar, place.count);
  if (!event.first) add_values(parameter.dtype, sum, tensor, place.count);
}

std::uint64_t ParameterMemory::append_bits(std::uint32_t parameter, const double* values,
                                           std::vector<std::uint64_t>& bits) const {
  const Place& place = places[parameter];
  const DType dtype = program_.parameters[parameter].dtype;
  const std::uint64_t offset = bits.size();
  for (std::size_t e = 0; e < place.count; ++e)
    bits.push_back(round_from_double(dtype, values[memory_of_[place.start + e]]));
  return offset;
}

}  // namespace lockstep::properties::torch_model
