// SparseSum: the way of a sparse gradient through the reducer (contract S1). A bucket with a sparse
// parameter, alone in it, has one in place of memory for its sum.
//
// Ranks do not know how many rows the others have. So when the gradient is ready each tells how
// many it has, and when backward has ended all send their rows, as many as the longest list has;
// then each rank adds them up in rank order. The numbers are on their way while backward runs.
//
// Threads: take() by the worker of the parameter's device; the rest under the reducer's lock, or by
// the thread that trains when backward has ended. Order: take, count, prepare, sum, once a pass.
// Memory: the rank's own rows, and from prepare() to sum() those of all ranks. Failure: as for
// tensor/sparse.h; and what a peer sent may be no list of rows, which is kCorrupted and suspects
// it.
#pragma once

#include <vector>

#include "reducer/autograd/parameter.h"
#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class SparseSum {
 public:
  explicit SparseSum(Parameter& parameter) : parameter_(parameter) {}

  // What this rank gives: the gradient coalesced, each row times `factor` (G2). An undefined one
  // has no rows.
  Status take(const Tensor& gradient, double factor);

  // The collective that tells every rank how many rows each has.
  Collective count(const ProcessGroup& group);

  // Once that is complete: those that send the rows. None if no rank has one.
  Result<std::vector<Collective>> prepare();

  // Of what they brought: the sum, a new tensor with each row once, ascending.
  Result<Tensor> sum();

 private:
  Status check_counts() const;
  Status check_numbers() const;

  Parameter& parameter_;
  Tensor own_;
  int rank_ = kNone;                  // in the group
  std::int64_t own_count_ = 0;        // as it is sent
  std::vector<std::int64_t> counts_;  // by rank
  // Of this rank and of all, padded to the longest list. Numbers of padding are negative.
  std::vector<std::int64_t> sent_numbers_;
  std::vector<std::int64_t> numbers_;
  Tensor sent_values_;
  Tensor values_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
