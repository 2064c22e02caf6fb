#include "properties/case/environment.h"

#include <array>

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

void normalize_nccl(Environment& environment, const reference::Program& program, bool has_faults) {
  Environment& e = environment;
  limit(e.nccl);
  limit(e.keeps);
  limit_rank(e.shrink_fails_on, program.world);
  limit_rank(e.revoke_fails_on, program.world);
  const bool is_nccl = program.options.transport == reference::Transport::kNccl;
  if (!is_nccl) {
    e.nccl = Environment::NcclRelease::kDefault;
    e.keeps = Environment::Keeps::kNone;
  }
  if (!is_nccl || !has_faults) e.shrink_fails_on = e.revoke_fails_on = 0;
  e.revoke_fails_late = e.revoke_fails_late && e.revoke_fails_on != 0;
  e.shrinks = e.shrinks && is_nccl;
  e.scales_down = e.scales_down && is_nccl;
  e.late_peer = e.late_peer && e.scales_down;
  e.excludes_twice = e.excludes_twice && is_nccl;
  e.lacks_shrink = e.lacks_shrink && is_nccl;
}

// Ranks with a fault, and those over NCCL, join no further time (training.cc).
void normalize_unlike_join(Environment& environment, const reference::Program& program,
                           bool has_faults) {
  Environment& e = environment;
  limit(e.unlike_join);
  if (has_faults || program.options.transport == reference::Transport::kNccl)
    e.unlike_join = Environment::UnlikeJoin::kNone;
  if (e.unlike_join != Environment::UnlikeJoin::kNone) return;
  e.unlike_rank = 0;
  e.unlike_terminates = e.unlike_divides_active = false;
}

}  // namespace

void normalize(Environment& environment, const reference::Program& program,
               const faults::FaultPlan& plan) {
  const bool has_faults = !plan.faults.empty();
  limit(environment.latency);
  limit(environment.records);
  if (environment.latency == Environment::Latency::kNone) environment.latency_seed = 0;
  normalize_unlike_join(environment, program, has_faults);
  normalize_nccl(environment, program, has_faults);
}

std::string_view release_of(Environment::NcclRelease release) {
  if (release == Environment::NcclRelease::kDefault) return {};
  return fields::name_of(release);
}

}  // namespace lockstep::properties
