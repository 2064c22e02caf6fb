#include "reference/power_sgd.h"

#include <algorithm>
#include <cmath>

namespace lockstep::reference {

PowerMatrix power_matrix(const Parameter& parameter) {
  if (parameter.dtype != DType::kFloat32) return {};
  PowerMatrix matrix;
  const std::size_t elements = element_count(parameter);
  for (const std::uint32_t dim : dimensions_in_memory(parameter))
    if (matrix.rows == 0 && parameter.sizes[dim] > 1) matrix.rows = parameter.sizes[dim];
  if (matrix.rows == 0 || elements == 0) return {};
  matrix.columns = elements / matrix.rows;
  matrix.factors = std::min<std::size_t>({kPowerSgdRank, matrix.rows, matrix.columns});
  const bool pays = matrix.factors * (matrix.rows + matrix.columns) < elements;
  return pays ? matrix : PowerMatrix{};
}

double power_start(std::uint32_t number, std::size_t element) {
  std::uint64_t hash = kPowerSgdSeed * 0x9e3779b97f4a7c15ULL;
  hash += (std::uint64_t{number} + 1) * 0xbf58476d1ce4e5b9ULL;
  hash += (std::uint64_t{element} + 1) * 0x94d049bb133111ebULL;
  hash ^= hash >> 30;
  hash *= 0xbf58476d1ce4e5b9ULL;
  hash ^= hash >> 27;
  hash *= 0x94d049bb133111ebULL;
  hash ^= hash >> 31;
  const double top = static_cast<double>(hash >> 40);  // 24 bits
  return std::ldexp(top, -23) - 1;
}

}  // namespace lockstep::reference
