#include "reference/construction_disagreement.h"

#include <algorithm>
#include <cassert>

#include "reference/program.h"

namespace lockstep::reference {
namespace {

using Row = DisagreementRow;

bool has_replicas(const Program& program) {
  const auto is_copy = [](const auto& each) { return each.copy_of > 0; };
  return std::ranges::any_of(program.parameters, is_copy) ||
         std::ranges::any_of(program.buffers, is_copy);
}

// Whether the change makes a difference for this parameter.
bool can_change(std::uint32_t needs, const Parameter& parameter) {
  const auto is_long = [](std::uint32_t size) { return size > 1; };
  const auto longer =
      element_count(parameter) == 0 ? 0 : std::ranges::count_if(parameter.sizes, is_long);
  const bool is_dense = !parameter.sparse;
  const bool trains = !parameter.frozen;
  if ((needs & Row::kStrides) != 0) return is_dense && longer > 1;
  if ((needs & Row::kDimension) != 0) return trains && !parameter.sizes.empty();
  return (needs & Row::kRoom) == 0 || (trains && is_dense && longer > 0);
}

// Whether a rank of the program can differ in this way at all.
bool applies(const Program& program) {
  const std::uint32_t needs = row_of(program.disagreement.kind).needs;
  const auto lacks = [&](Row::Needs need, bool has) { return (needs & need) != 0 && !has; };
  return program.disagreement.kind != DisagreementKind::kNone &&
         !lacks(Row::kParameter, changed_parameter(program).has_value()) &&
         !lacks(Row::kTwoParameters, changeable_parameters(program).size() > 1) &&
         !lacks(Row::kNoReplicas, !has_replicas(program)) &&
         !lacks(Row::kNoValues, !program.options.with_values) &&
         !lacks(Row::kReduced, !construction_order(share_of(program, 0)).empty()) &&
         !lacks(Row::kVerified, program.options.verify) &&
         !lacks(Row::kUnverified, !program.options.verify);
}

Refusal::By refused_by(const Program& program) {
  const Row& row = row_of(program.disagreement.kind);
  const bool uses_limits =
      program.options.pinned == 0 && program.options.launch == Launch::kOverlapped;
  return (row.needs & Row::kLimits) != 0 && !uses_limits ? Refusal::By::kAgreement : row.by;
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
  const std::uint32_t needs = row_of(program.disagreement.kind).needs;
  if ((needs & Row::kParameter) == 0) return std::nullopt;
  std::vector<std::uint32_t> choices = changeable_parameters(program);
  std::erase_if(choices,
                [&](std::uint32_t index) { return !can_change(needs, program.parameters[index]); });
  if (choices.empty()) return std::nullopt;
  return choices[program.disagreement.pick % choices.size()];
}

std::optional<Refusal> refusal_of(const Program& program,
                                  const std::vector<std::uint32_t>& members) {
  if (program.disagreement.kind == DisagreementKind::kNone || members.empty()) return std::nullopt;
  Refusal refusal;
  refusal.by = refused_by(program);
  refusal.rank = members[program.disagreement.rank % members.size()];
  if (refusal.by == Refusal::By::kAgreement && members.size() == 1) return std::nullopt;
  return refusal;
}

bool is_reset_refused(const Program& program) {
  return program.disagreement.kind != DisagreementKind::kNone && program.disagreement.at_reset;
}

void limit_disagreement(Program& program) {
  ConstructionDisagreement& own = program.disagreement;
  own.kind =
      static_cast<DisagreementKind>(static_cast<std::size_t>(own.kind) % kDisagreements.size());
  own.rank %= program.world;
  const bool has_variants = (row_of(own.kind).needs & Row::kVariants) != 0;
  own.variant = has_variants ? own.variant % kDisagreementVariants : 0;
  if (!applies(program) || (program.world == 1 && refused_by(program) == Refusal::By::kAgreement))
    own = {};
}

}  // namespace lockstep::reference
