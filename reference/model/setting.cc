#include "reference/model/setting.h"

#include <cassert>
#include <utility>

namespace lockstep::reference {
namespace {

ParameterRoles roles_of(const Program& program) {
  ParameterRoles roles;
  roles.originals.resize(program.parameters.size());
  roles.replicas.resize(program.parameters.size());
  roles.positions.resize(program.parameters.size());
  for (std::uint32_t p = 0; p < program.parameters.size(); ++p) {
    const std::uint32_t owner = owner_of(program, p);
    roles.owners.push_back(program.parameters[owner].frozen ? kNotTrained : owner);
    if (roles.owners[p] != p) continue;
    const Parameter& parameter = program.parameters[p];
    roles.trained.push_back(p);
    const std::uint64_t values = parameter.sparse ? 0 : value_count(parameter);
    roles.positions[p].reserve(values);
    for (std::uint64_t value = 0; value < values; ++value)
      roles.positions[p].push_back(
          static_cast<std::uint32_t>(row_major_to_memory(parameter, value)));
    if (!is_reduced(parameter)) continue;
    roles.parts.push_back(p);
    if (parameter.copy_of == 0) roles.reduced.push_back(p);
    roles.originals[p] = p - parameter.copy_of;
    assert(roles.owners[roles.originals[p]] == roles.originals[p]);
    roles.replicas[roles.originals[p]].push_back(p);
  }
  return roles;
}

}  // namespace

Setting make_setting(Program program, const Contract& contract, std::uint32_t group) {
  Setting setting{std::move(program), contract, group, {}, {}};
  setting.roles = roles_of(setting.program);
  setting.tensors = state_tensors(setting.program);
  return setting;
}

}  // namespace lockstep::reference
