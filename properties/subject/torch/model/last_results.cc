#include "properties/subject/torch/model/last_results.h"

#include <algorithm>

namespace lockstep::properties::torch_model {

LastResults::LastResults(const Program& program, const ParameterMemory& memory)
    : program_(program),
      memory_(memory),
      is_elsewhere_(program.options.hook == reference::Hook::kElsewhere),
      sums_(memory.total),
      entries_(program.world * program.parameters.size()) {}

void LastResults::keep(std::uint32_t parameter, std::size_t begin, std::size_t end,
                       const double* sums) {
  std::copy(sums, sums + (end - begin), sums_.data() + memory_.places[parameter].start + begin);
}

void LastResults::end_reduction(std::uint32_t parameter, bool is_lazy) {
  has_result_[memory_.places[parameter].bucket] = !is_lazy;
}

void LastResults::keep(std::uint32_t rank, std::uint32_t parameter,
                       const reference::Entries& entries) {
  entries_[rank * program_.parameters.size() + parameter] = entries;
}

void LastResults::leave(std::uint32_t rank, std::uint32_t parameter, const Gradient& own,
                        const reference::Entries& entries) {
  if (own.is_result && !is_elsewhere_) keep(rank, parameter, entries);
}

void LastResults::repeat(std::uint32_t rank, std::uint32_t parameter, bool is_used,
                         const Place& to) const {
  const ParameterMemory::Place& place = memory_.places[parameter];
  if (!has_result_[place.bucket]) return;
  if (program_.parameters[parameter].sparse) {
    if (!to.own.defined || (to.own.is_result && !is_elsewhere_)) return;
    to.sparse = entries_[rank * program_.parameters.size() + parameter];
  } else {
    const bool is_view = to.own.defined && to.own.in_bucket;
    if (!is_used && !(is_view && is_elsewhere_)) return;
    const double* const result = is_elsewhere_ ? sums_.data() + place.start : to.bucket;
    std::copy_n(result, place.count, to.dense);
    to.own.in_bucket = program_.options.views;
  }
  to.own.defined = to.own.touched = true;
  to.own.recorded = false;
}

}  // namespace lockstep::properties::torch_model
