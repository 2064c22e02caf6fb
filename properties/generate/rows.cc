#include "properties/generate/rows.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <type_traits>

#include "properties/case/fields.h"

namespace lockstep::properties {
namespace {

using reference::Options;

constexpr std::uint32_t kMaxDrawn = 1000;  // of a number without choices; any is as good

// Draws a value of a field other than its default, or by the weights of the values.
template <typename T>
T draw_value(Random& random, const fields::Row& row) {
  if constexpr (std::is_enum_v<T>) {
    constexpr auto weights = fields::weights<T>();
    const bool has_weights = std::any_of(weights.begin(), weights.end(), std::identity());
    return static_cast<T>(has_weights ? random.weighted(weights) : 1);
  } else if constexpr (std::is_same_v<T, bool>) {
    return true;
  } else {
    const auto count = static_cast<std::uint32_t>(row.choices.size());
    return count > 0 ? row.choices[random.below(count)] : 1 + random.below(kMaxDrawn);
  }
}

}  // namespace

void draw_rows(const std::function<Random(std::string_view)>& random_for,
               const Capabilities& capabilities, Options& options) {
  fields::for_each<Options>([&](const auto& field) {
    using T = std::remove_cvref_t<decltype(field.get(options))>;
    const fields::Row& row = field.row;
    const std::string_view stream = row.stream != nullptr ? row.stream : field.name;
    if (row.percent == 0 || stream == fields::kByHand) return;
    Random random = random_for(stream);
    const bool is_drawn = random.percent(row.percent);
    const T value = draw_value<T>(random, row);
    if (!is_drawn || (row.needs && !capabilities.has(*row.needs))) return;
    if constexpr (std::is_enum_v<T>) {
      const std::optional<Capability> needs = fields::value_of(value).needs;
      if (needs && !capabilities.has(*needs)) return;
    }
    field.get(options) = value;
  });
}

void follow_verify(const Capabilities& capabilities, reference::Options& drawn) {
  drawn.verify = drawn.verify && capabilities.has(Capability::kRankOrder);
  if (drawn.verify) drawn.order = reference::Order::kRankOrder;
}

void follow_skip(reference::Program& program) {
  reference::Program normal = program;
  reference::normalize(normal);
  program.options.skip_all_reduce_unused_params = normal.options.skip_all_reduce_unused_params;
}

void follow_faults(reference::Options& options) {
  using enum reference::Finalization;
  if (options.finalization != kAutomatic) options.finalization = kAfter;
  options.update_process_group = 0;
}

}  // namespace lockstep::properties
