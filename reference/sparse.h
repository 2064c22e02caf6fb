// Sparse gradients (S1), as lists of entries; and their reduction: they are gathered, and added up
// in the order of the ranks. Plain data; any thread; nothing fails.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/expectation.h"
#include "reference/program.h"

namespace lockstep::reference {

struct Entries {
  std::vector<std::uint32_t> rows;
  std::vector<double> values;  // one row after the other, each row-major
};

// Values of one row of a sparse parameter.
std::uint64_t row_elements(const Parameter& parameter);

// One use of a parameter by a node, in the words of program.h.
struct Use {
  std::uint32_t step_key = 0;
  std::uint32_t node_key = 0;
  std::uint32_t entries = 0;
};

// What a use sends. It looks up as many rows as its `entries` says or fewer, any row any number of
// times, and none if the parameter has no rows. Element j of its i-th entry is the element
// i * row_elements + j of the use's constant (values.h), times the scalar, rounded.
Entries entries_of(const Program& program, const Parameter& parameter, std::uint32_t rank,
                   const Use& use, double scalar);

void append(Entries& into, const Entries& from);

// One entry for each row, ascending: the row's entries folded in their order, rounded to the dtype
// at each step.
Entries coalesced(const Parameter& parameter, const Entries& entries);

// Appends what is told of such a gradient (gradient_words); where that begins is returned.
std::uint64_t append_bits(const Parameter& parameter, const Entries& entries,
                          std::vector<std::uint64_t>& bits);

// What all ranks receive. `contributions`: what each rank has, coalesced, not scaled.
Entries reduce_sparse(const Parameter& parameter, std::uint32_t divisor,
                      const std::vector<Entries>& contributions);

// The collectives of a sparse bucket after the usage map (T2): the numbers of the rows, and their
// values.
std::vector<ExpectedCollective> gather_rows(std::uint32_t bucket, const Parameter& parameter,
                                            const std::vector<Entries>& contributions);

}  // namespace lockstep::reference
