// Values: the elements of the constant c of one use (program.h). An element is a pure hash of keys,
// rank and index. Plain data; any thread; never fails.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/arithmetic.h"
#include "reference/program.h"

namespace lockstep::reference {

class UseValues {
 public:
  UseValues(const Program& program, const Parameter& parameter, std::uint32_t rank,
            std::uint32_t step_key, std::uint32_t node_key);

  // The element with this row-major index, as a double that the dtype can hold.
  double at(std::uint64_t element) const;

  // As many elements as there are positions: the one with row-major index i goes to
  // into[positions[i]].
  void read(const std::vector<std::uint32_t>& positions, double* into) const;

  // Any number, of this rank's own; none is that of an element.
  std::uint64_t number(std::uint64_t index) const;

 private:
  double exact(std::uint64_t shared) const;
  double general(std::uint64_t shared) const;
  double special(std::uint64_t shared) const;
  double largest(std::uint64_t shared) const;

  const Program& program_;
  DType dtype_;
  Format format_;
  std::uint32_t rank_;
  std::uint64_t seed_;  // the same on all ranks
};

}  // namespace lockstep::reference
