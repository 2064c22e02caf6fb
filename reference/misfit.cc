#include "reference/misfit.h"

#include <algorithm>
#include <cassert>

#include "reference/program.h"

namespace lockstep::reference {
namespace {

bool has_replicas(const Program& program) {
  const auto is_copy = [](const auto& each) { return each.copy_of > 0; };
  return std::ranges::any_of(program.parameters, is_copy) ||
         std::ranges::any_of(program.buffers, is_copy);
}

bool changes_a_parameter(MisfitKind kind) {
  return (kind >= MisfitKind::kSizes && kind <= MisfitKind::kIgnored) ||
         kind == MisfitKind::kFewerParameters || kind == MisfitKind::kNullParameter ||
         kind == MisfitKind::kHoles || kind == MisfitKind::kMoreReplicas ||
         kind == MisfitKind::kReplicaSizes || kind == MisfitKind::kReplicaList;
}

// Whether the change makes a difference for this parameter.
bool can_change(MisfitKind kind, const Parameter& parameter) {
  assert(changes_a_parameter(kind));
  const auto is_long = [](std::uint32_t size) { return size > 1; };
  const auto longer = std::ranges::count_if(parameter.sizes, is_long);
  const bool has_elements = element_count(parameter) > 0;
  switch (kind) {
    case MisfitKind::kStrides:
      return longer > 1 && has_elements && !parameter.sparse;
    case MisfitKind::kSparse:
      return !parameter.sizes.empty() && !parameter.frozen;
    case MisfitKind::kHoles:
      return longer > 0 && has_elements && !parameter.frozen && !parameter.sparse;
    default:
      return true;
  }
}

// Whether a rank of the program can differ in this way at all.
bool applies(const Program& program, MisfitKind kind) {
  assert(kind <= kLastMisfit);
  const bool is_listed_once = !has_replicas(program);
  const std::size_t changeable = changeable_parameters(program).size();
  switch (kind) {
    case MisfitKind::kNone:
      return false;
    case MisfitKind::kOrder:
      return !program.options.verify;
    case MisfitKind::kVerify:
    case MisfitKind::kGroupVerify:
      return program.options.verify;
    case MisfitKind::kFewerParameters:
    case MisfitKind::kSwapped:
      return changeable > 1 && is_listed_once;
    case MisfitKind::kMoreReplicas:
    case MisfitKind::kReplicaSizes:
    case MisfitKind::kReplicaList:
      return changeable > 0 && is_listed_once && !program.options.with_values;
    case MisfitKind::kMoreParameters:
    case MisfitKind::kMoreBuffers:
    case MisfitKind::kNullBuffer:
    case MisfitKind::kReplicaBuffer:
      return is_listed_once;
    case MisfitKind::kIgnored:
      return is_listed_once && changed_parameter(program).has_value();
    case MisfitKind::kGroupDType:
    case MisfitKind::kGroupDevice:
      return !construction_order(share_of(program, 0)).empty();
    default:
      return !changes_a_parameter(kind) || changed_parameter(program).has_value();
  }
}

bool has_variants(MisfitKind kind) {
  return kind == MisfitKind::kNullBuffer || kind == MisfitKind::kReplicaBuffer ||
         kind == MisfitKind::kGroupDType || kind == MisfitKind::kGroupDevice ||
         kind == MisfitKind::kGroupVerify;
}

Refusal::By refused_by(const Program& program) {
  const Replicated& options = program.options;
  const MisfitKind kind = program.misfit.kind;
  if (kind == MisfitKind::kLayout) return Refusal::By::kEveryRank;
  // Without a use for the limits no rank refuses them, but the ranks still compare them.
  const bool uses_limits = options.pinned == 0 && options.launch == Launch::kOverlapped;
  if (kind == MisfitKind::kNoLimits && !uses_limits) return Refusal::By::kAgreement;
  return kind < MisfitKind::kUnknownName ? Refusal::By::kAgreement : Refusal::By::kOneRank;
}

}  // namespace

std::vector<std::uint32_t> changeable_parameters(const Program& program) {
  const Program share = share_of(program, 0);
  std::vector<std::uint32_t> uses(share.parameters.size());
  for (std::uint32_t i = 0; i < uses.size(); ++i) ++uses[original_of(share, i)];
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < uses.size(); ++i)
    if (uses[i] == 1 && !share.parameters[i].ignored) out.push_back(i);
  return out;
}

std::optional<std::uint32_t> changed_parameter(const Program& program) {
  if (!changes_a_parameter(program.misfit.kind)) return std::nullopt;
  std::vector<std::uint32_t> choices = changeable_parameters(program);
  std::erase_if(choices, [&](std::uint32_t index) {
    return !can_change(program.misfit.kind, program.parameters[index]);
  });
  if (choices.empty()) return std::nullopt;
  return choices[program.misfit.pick % choices.size()];
}

std::optional<Refusal> refusal_of(const Program& program,
                                  const std::vector<std::uint32_t>& members) {
  if (program.misfit.kind == MisfitKind::kNone || members.empty()) return std::nullopt;
  Refusal refusal;
  refusal.by = refused_by(program);
  refusal.rank = members[program.misfit.rank % members.size()];
  if (refusal.by == Refusal::By::kAgreement && members.size() == 1) return std::nullopt;
  return refusal;
}

void limit_misfit(Program& program) {
  Misfit& misfit = program.misfit;
  misfit.kind = static_cast<MisfitKind>(static_cast<unsigned>(misfit.kind) %
                                        (static_cast<unsigned>(kLastMisfit) + 1));
  misfit.rank %= program.world;
  misfit.variant = has_variants(misfit.kind) ? misfit.variant % kMisfitVariants : 0;
  if (!applies(program, misfit.kind) ||
      (program.world == 1 && refused_by(program) == Refusal::By::kAgreement))
    misfit = {};
}

}  // namespace lockstep::reference
