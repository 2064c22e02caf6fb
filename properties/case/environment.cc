#include "properties/case/environment.h"

#include <type_traits>

#include "properties/case/exclusions.h"
#include "properties/case/fields.h"

namespace lockstep::properties {
namespace {

template <typename Enum>
void limit(Enum& value) {
  value =
      static_cast<Enum>(static_cast<std::size_t>(value) % std::size(fields::Values<Enum>::list));
}

// Counts a rank from 1; 0 is none.
void limit_rank(std::uint32_t& rank, std::uint32_t world) {
  if (rank != 0) rank = 1 + (rank - 1) % world;
}

}  // namespace

void normalize_surroundings(Case& value) {
  Environment& environment = value.environment;
  fields::for_each<Environment>([&](const auto& field) {
    if constexpr (std::is_enum_v<std::remove_reference_t<decltype(field.get(environment))>>)
      limit(field.get(environment));
  });
  limit_rank(environment.shrink_fails_on, value.program.world);
  limit_rank(environment.revoke_fails_on, value.program.world);
  limit(value.torch.finalization);
  reference::leave_out_excluded(kExclusionsAround, value, environment);
  reference::leave_out_excluded(kExclusionsAround, value, value.torch);
}

std::string_view release_of(Environment::NcclRelease release) {
  if (release == Environment::NcclRelease::kDefault) return {};
  return fields::name_of(release);
}

}  // namespace lockstep::properties
