// Carries out a program's disagreement (reference/construction_disagreement.h) on the production
// reducer: changes what the one rank that differs is constructed with.
//
// Threads: the rank's own. Ownership: what is made here belongs to the inputs.
#pragma once

#include <memory>
#include <vector>

#include "reducer/bucket/layout.h"
#include "reducer/options.h"
#include "reference/program.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// The arguments with which a reducer is constructed.
struct ConstructionInputs {
  std::vector<Ref<Parameter>> parameters;
  ReducerOptions options;
  Membership membership;
};

// Returns what layouts need to know about the parameters that a reducer of this program is given
// and does not ignore, each once. `parameters` are the program's, by number.
std::vector<ParameterInfo> infos_of(const std::vector<Ref<Parameter>>& parameters,
                                    const reference::Program& program);

// Changes the inputs of the rank that differs (of every rank, for the row "layout"). `share` is the
// program as the first reducer sees it. Where changes_group() holds, it changes nothing.
void disagree(const reference::Program& program, const reference::Program& share,
              const std::vector<Ref<Parameter>>& parameters, ConstructionInputs& inputs);

// Returns whether the rank's group differs. Such a rank resets, like the others, and is not
// constructed anew beside their reset.
bool changes_group(reference::DisagreementKind kind);

// Returns, where changes_group() holds, the membership with a group that can do less than it could,
// or with a backward group of another size or rank; the program's variant says which. The original
// groups stay as they are, whatever is called on the new one.
Membership with_changed_group(const reference::Program& program, const Membership& membership);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
