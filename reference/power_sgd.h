// PowerSgd: what the hook of that name does to the gradients of one bucket after the other (S4),
// and what it keeps from pass to pass. Floats are doubles that a float32 holds; matrices lie row by
// row. One thread; nothing fails.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "reference/expectation.h"
#include "reference/program.h"

namespace lockstep::reference {

// Of the hook that a program has.
constexpr std::uint32_t kPowerSgdRank = 2;
constexpr std::uint64_t kPowerSgdSeed = 1;

// A gradient as a matrix, in memory order. Without factors it is not compressed.
struct PowerMatrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t factors = 0;
};
PowerMatrix power_matrix(const Parameter& parameter);

// Element `element` of the matrix Q that the parameter with this number among the distinct ones
// starts from.
double power_start(std::uint32_t number, std::size_t element);

class PowerSgd {
 public:
  using Floats = std::vector<double>;
  // Adds up what each rank has, in the declared order (G3).
  using Sum = std::function<Floats(std::vector<Floats> of_ranks)>;

  explicit PowerSgd(const Program& program);  // has no buckets for a program without the hook
  void forget();                              // F4

  // Elements of the two sums of a bucket; both 0 if nothing in it is compressed, and it is summed
  // like any other.
  std::size_t first_count(const ExpectedBucket& bucket) const;
  std::size_t second_count(const ExpectedBucket& bucket) const;

  // The result for each member. `given` has the gradients of `ranks`, by position and member, not
  // scaled.
  std::vector<Floats> reduce(const ExpectedBucket& bucket, const std::vector<std::uint32_t>& ranks,
                             std::uint32_t divisor, const std::vector<std::vector<Floats>>& given,
                             const Sum& sum);

 private:
  struct State {
    PowerMatrix matrix;
    std::uint32_t number = 0;  // among distinct parameters
    std::size_t elements = 0;
    std::vector<Floats> errors;  // by rank
    Floats q;
  };
  void renew(State& state) const;

  std::vector<State> states_;  // by parameter of the program
};

}  // namespace lockstep::reference
