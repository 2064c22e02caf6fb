// GradientScale is the factor that makes a mean of a sum over ranks: 1/N in the gradient's own
// precision (G2).
//
// Threads: one call at a time; of() from any thread between two calls of divide_by().
#pragma once

#include "reducer/base/dtype.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class GradientScale {
 public:
  // N is the number of ranks whose mean is taken; 1 at first.
  void divide_by(int ranks);
  int divisor() const { return divisor_; }
  double of(DType dtype) const { return dtype == DType::kFloat64 ? factor_ : float_factor_; }

 private:
  int divisor_ = 1;
  double factor_ = 1.0;        // Of float64 gradients.
  double float_factor_ = 1.0;  // Of all other gradients, rounded to float.
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
