#include "properties/subject/torch/model/call_sums.h"

#include <utility>

#include "reference/sparse.h"

namespace lockstep::properties::torch_model {

CallSums::CallSums(const Program& program, ParameterMemory& memory, const Policies& policies)
    : program_(program), memory_(memory), merges_sparse_(policies.merges_sparse) {
  for (std::vector<Entries>& sums : sparse_sums_) sums.resize(program.parameters.size());
}

bool CallSums::add_tensor(const Event& event, std::uint32_t rank, std::uint32_t step_key) {
  std::vector<double>& sums = sums_[event.depth];
  if (sums.empty()) sums.resize(memory_.total);
  const Parameter& record = program_.parameters[event.parameter];
  if (!record.sparse) {
    memory_.add_tensor(event, rank, step_key, sums.data());
    return true;
  }
  Entries& sum = sparse_sums_[event.depth][event.parameter];
  Entries sent = reference::entries_of(program_, record, rank,
                                       {step_key, event.node_key, event.entries}, event.scalar);
  bool is_able = true;
  if (event.first) {
    sum = std::move(sent);
  } else if (merges_sparse_) {  // the one that came last goes first
    is_able = add_entries(record, true, sent, sum);
    sum = std::move(sent);
  } else {
    append(sum, sent);
  }
  return is_able;
}

}  // namespace lockstep::properties::torch_model
