#include "properties/generate/rows.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>

#include "properties/case/fields.h"

namespace lockstep::properties {
namespace {

using reference::Replicated;

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

using RandomFor = std::function<Random(std::string_view)>;

// `prefix` comes before the names of streams, so that fields of two records can have one name.
template <typename Record>
void draw_fields(const RandomFor& random_for, const std::string& prefix,
                 const Capabilities& capabilities, Record& record) {
  fields::for_each<Record>([&](const auto& field) {
    using T = std::remove_cvref_t<decltype(field.get(record))>;
    const fields::Row& row = field.row;
    const std::string_view stream = row.stream != nullptr ? row.stream : field.name;
    if (row.percent == 0 || stream == fields::kByHand) return;
    Random random = random_for(prefix + std::string(stream));
    const bool is_drawn = random.percent(row.percent);
    const T value = draw_value<T>(random, row);
    if (!is_drawn || (row.needs && !capabilities.has(*row.needs))) return;
    if constexpr (std::is_enum_v<T>) {
      const std::optional<Capability> needs = fields::value_of(value).needs;
      if (needs && !capabilities.has(*needs)) return;
    }
    field.get(record) = value;
  });
}

}  // namespace

void draw_rows(const RandomFor& random_for, const Capabilities& capabilities, Replicated& options) {
  draw_fields(random_for, "", capabilities, options);
}

void draw_rows(const RandomFor& random_for, Environment& environment) {
  draw_fields(random_for, "environment ", Capabilities::all(), environment);
}

void follow_verify(const Capabilities& capabilities, reference::Replicated& drawn) {
  drawn.verify = drawn.verify && capabilities.has(Capability::kRankOrder);
  if (drawn.verify) drawn.order = reference::Order::kRankOrder;
}

void draw_torch_options(const RandomFor& random_for, const Capabilities& capabilities,
                        Case& value) {
  using enum TorchOptions::Finalization;
  TorchOptions& options = value.torch;
  draw_fields(random_for, "", capabilities, options);
  if (value.faults.faults.empty()) return;
  if (options.finalization != kAutomatic) options.finalization = kAfter;
  options.update_process_group = 0;
}

}  // namespace lockstep::properties
