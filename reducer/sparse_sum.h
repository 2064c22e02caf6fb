// SparseSum reduces a sparse gradient (contract S1). A sparse parameter is alone in its bucket, and
// the bucket has a SparseSum in place of memory for a dense sum.
//
// A rank does not know how many rows the other ranks have. So when the gradient is ready, each rank
// sends the number of its rows. When backward has ended, all ranks send their rows, padded to the
// length of the longest list, and each rank adds them up in rank order. The exchange of the numbers
// overlaps with backward.
//
// Threads: the worker of the parameter's device calls take(). The other functions run under the
// reducer's lock, or on the thread that trains when backward has ended.
// Order: take, count, prepare, sum, once in each pass.
// Memory: the rank's own rows, and from prepare() to sum() the rows of all ranks.
// Failure: as for tensor/sparse.h. If what a peer sent is not a valid list of rows, that is
// kCorrupted and suspects the peer.
#pragma once

#include <vector>

#include "reducer/autograd/parameter.h"
#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class SparseSum {
 public:
  explicit SparseSum(Parameter& parameter) : parameter_(parameter) {}

  // Sets this rank's contribution: the gradient, coalesced, with each row multiplied by `factor`
  // (G2). An undefined gradient has no rows.
  Status take(const Tensor& gradient, double factor);

  // Returns the collective that tells every rank how many rows each rank has.
  Collective count(const ProcessGroup& group);

  // Call it when that collective is complete. It returns the collectives that send the rows, or
  // none if no rank has rows.
  Result<std::vector<Collective>> prepare();

  // Returns the sum of the rows that were received: a new tensor that has each row once, ascending.
  Result<Tensor> sum();

 private:
  Status check_counts() const;
  Status check_numbers() const;

  Parameter& parameter_;
  Tensor own_;
  int rank_ = kNone;                  // The rank in the group.
  std::int64_t own_count_ = 0;        // The number of own rows, as it is sent.
  std::vector<std::int64_t> counts_;  // One entry for each rank.
  // The row numbers of this rank and of all ranks, padded to the longest list. Padding has negative
  // numbers.
  std::vector<std::int64_t> sent_numbers_;
  std::vector<std::int64_t> numbers_;
  Tensor sent_values_;
  Tensor values_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
