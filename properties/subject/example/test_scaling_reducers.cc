// Reducers that make the average in another way than the contract, or none at all. Each is
// flat_reducer.cc with its scaling replaced. LOCKSTEP_EXAMPLE_SCALE selects it:
//  1  sums: the gradient is the sum, as it says
//  2  divides_after: the sum is divided by N, as it says
//  3  false_sums: it says that it sums, and averages
//  4  false_division: it says that it divides the sum, and divides each contribution
//  5  undeclared_sums: it sums, and says nothing
//  6  unsteady: it divides some contributions, and multiplies others, in another way in each run
// The first two are right; the fuzzer must find the others. The sixth is right where any arithmetic
// is, and `lockstep gate` must refuse to record it.
#include <cstdint>

namespace {

constexpr bool kIsUnsteady = LOCKSTEP_EXAMPLE_SCALE == 6;
constexpr bool kDividesBefore =
    LOCKSTEP_EXAMPLE_SCALE == 3 || LOCKSTEP_EXAMPLE_SCALE == 4 || kIsUnsteady;
constexpr bool kDividesAfter = LOCKSTEP_EXAMPLE_SCALE == 2;

template <class T>
T scaled_before(T gradient, std::uint32_t world) {
  static unsigned calls = 0;
  if (kIsUnsteady && calls++ % 7 == 0) return gradient * (T(1) / static_cast<T>(world));
  return kDividesBefore ? gradient / static_cast<T>(world) : gradient;
}

template <class T>
T scaled_after(T sum, std::uint32_t world) {
  return kDividesAfter ? sum / static_cast<T>(world) : sum;
}

constexpr const char* kScales[] = {"sum", "divide after", "sum", "divide after", nullptr, nullptr};
constexpr const char* kScale = kScales[LOCKSTEP_EXAMPLE_SCALE - 1];

}  // namespace

#include "flat_reducer.cc"
