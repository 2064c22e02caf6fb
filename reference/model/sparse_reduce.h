// Sparse reduction: gradients that are lists of entries are gathered, and added up in the order of
// the ranks (S1). Pure functions; any thread; nothing fails.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/expectation.h"
#include "reference/model/reduce.h"

namespace lockstep::reference {

// The rows that each rank contributes, by position in the group: coalesced, of all its replicas,
// not scaled.
std::vector<Rows> sparse_contributions(const Setting& setting, const Contributors& contributors,
                                       std::uint32_t parameter);

// What all ranks receive.
Tensor reduce_sparse(const Parameter& parameter, std::uint32_t divisor,
                     const std::vector<Rows>& contributions);

// The collectives of a sparse bucket: how many rows each rank has, where the sum of another bucket
// stands; their numbers and values, after the usage map (T2).
ExpectedCollective gather_row_counts(std::uint32_t bucket);
std::vector<ExpectedCollective> gather_rows(std::uint32_t bucket, const Parameter& parameter,
                                            const std::vector<Rows>& contributions);

}  // namespace lockstep::reference
