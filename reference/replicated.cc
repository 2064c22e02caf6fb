#include "reference/replicated.h"

namespace lockstep::reference {

std::vector<std::uint64_t> bucket_limits(const Replicated& options) {
  if (options.launch == Launch::kAfterBackward) return {options.bucket_bytes};
  std::vector<std::uint64_t> limits{options.first_bucket_bytes, options.bucket_bytes};
  if (options.last_bucket_bytes != 0) limits.push_back(options.last_bucket_bytes);
  return limits;
}

DType wire_dtype(Hook hook, DType dtype) {
  const bool is_wide = dtype == DType::kFloat32 || dtype == DType::kFloat64;
  if (is_wide && hook == Hook::kFloat16) return DType::kFloat16;
  if (is_wide && hook == Hook::kBFloat16) return DType::kBFloat16;
  return dtype;
}

}  // namespace lockstep::reference
