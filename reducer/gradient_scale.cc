#include "reducer/gradient_scale.h"

#include "reducer/base/check.h"
#include "reducer/base/float_environment.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

void GradientScale::divide_by(int ranks) {
  LOCKSTEP_CHECK(ranks > 0);
  const volatile int count = ranks;  // Read from memory, so that the divisions stay behind this.
  // The application may have set another rounding mode for this thread (G9).
  const DefaultFloats floats;
  divisor_ = ranks;
  factor_ = 1.0 / count;
  float_factor_ = static_cast<double>(1.0f / static_cast<float>(count));
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
