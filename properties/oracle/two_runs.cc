#include "properties/oracle/two_runs.h"

#include <fmt/format.h>

#include <algorithm>

#include "properties/oracle/oracles.h"
#include "reference/arithmetic.h"

namespace lockstep::properties {

bool same_words(const reference::Parameter& parameter, const std::uint64_t* one,
                const std::uint64_t* other, std::uint64_t& first_difference) {
  for (std::uint64_t e = 0; e < reference::gradient_words(parameter); ++e) {
    first_difference = e;
    if (one[e] != other[e] && !reference::same_bits(parameter.dtype, one[e], other[e]))
      return false;
  }
  return true;
}

std::string side_by_side(const std::string& one, const std::string& a, const std::string& other,
                         const std::string& b) {
  const std::size_t width = std::max(one.size(), other.size());
  return fmt::format(":\n  {:{}}  {}\n  {:{}}  {}", one, width, a, other, width, b);
}

std::string outcome_of_step(const ObservedStep* step) {
  if (step == nullptr) return "did not come to it";
  return step->status.ok() ? "succeeds" : "fails: " + step->status.to_string();
}

GradientsDiffer compare_gradients(const reference::Parameter& parameter, const GradientOfRun& one,
                                  const GradientOfRun& other) {
  const auto defined = [](bool is) { return is ? "defined" : "undefined"; };
  const bool is_defined = one.gradient.defined;
  if (is_defined != other.gradient.defined)
    return {side_by_side(one.name, defined(is_defined), other.name, defined(!is_defined)), {}};
  std::uint64_t e = 0;
  const std::uint64_t* x = one.bits.data() + one.gradient.offset;
  const std::uint64_t* y = other.bits.data() + other.gradient.offset;
  if (!is_defined || same_words(parameter, x, y, e)) return {};
  return {fmt::format(", {}{}", name_of_word(parameter, e),
                      side_by_side(one.name, show_word(parameter, x[e], e), other.name,
                                   show_word(parameter, y[e], e))),
          e};
}

}  // namespace lockstep::properties
