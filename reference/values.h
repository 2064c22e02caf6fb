// Values: the elements of the constant c of one use (see value_of in program.h), for loops over a
// whole tensor. A value is a pure hash of keys, rank and index. Plain data; any thread; never
// fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reference/program.h"

namespace lockstep::reference {

class UseValues {
 public:
  UseValues(const Program& program, const Parameter& parameter, std::uint32_t rank,
            std::uint32_t step_key, std::uint32_t node_key);

  // The element with this row-major index, as a double that the dtype can hold.
  double at(std::uint64_t element) const;

  // Any number, of this rank's own; none is that of an element.
  std::uint64_t number(std::uint64_t index) const;

  // Elements 0 .. count - 1; that with row-major index i goes to into[position[i]], or to into[i].
  void read(double* into, const std::uint32_t* position, std::size_t count) const;
  void read(double* into, std::size_t count) const;

 private:
  template <class Place>
  void read_to(double* into, std::size_t count, Place place) const;
  bool is_bad(std::uint64_t element) const {
    return bad_ != 0 && (bad_at_ == 0 || bad_at_ == element + 1);
  }
  double exact(std::uint64_t shared) const;
  double general(std::uint64_t shared) const;
  double special(std::uint64_t shared) const;
  double largest(std::uint64_t shared) const;

  Values values_;
  DType dtype_;
  std::uint32_t rank_;
  double unit_;               // kExact: what the integers are multiplied by
  int top_exponent_;          // kLargest: the exponent of the largest values
  int dropped_bits_;          // how many bits of a double's mantissa the dtype lacks
  std::uint64_t seed_;        // the same on all ranks
  double bad_ = 0;            // the bad number, if it is not 0
  std::uint64_t bad_at_ = 0;  // as BadNumber::element
};

}  // namespace lockstep::reference
