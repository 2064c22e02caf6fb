// Entries: a sparse gradient (S1), as the list of what arrived. Plain data; any thread; nothing
// fails.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

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

// The rows that a use looks up: as many as its `entries` says or fewer, any row any number of
// times. None if the parameter has no rows.
std::vector<std::uint32_t> looked_up(const Program& program, const Parameter& parameter,
                                     std::uint32_t rank, const Use& use);

// What a use sends: element j of its i-th entry is value_of() the element i * row_elements + j,
// times the scalar, rounded.
Entries entries_of(const Program& program, const Parameter& parameter, std::uint32_t rank,
                   const Use& use, double scalar);

void append(Entries& into, const Entries& from);

// By row: its entries folded in their order, rounded to the dtype at each step.
using Rows = std::map<std::uint32_t, std::vector<double>>;
Rows coalesced(const Parameter& parameter, const Entries& entries);

// The rows as one list of entries, ascending.
Entries entries_of(const Rows& rows);

// Appends what is told of such a gradient (gradient_words); where that begins is returned.
std::uint64_t append_bits(const Parameter& parameter, const Entries& entries,
                          std::vector<std::uint64_t>& bits);

}  // namespace lockstep::reference
