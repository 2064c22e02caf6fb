// Carries out a program's misfit (reference/misfit.h) on the production reducer: changes what the
// one rank that does not fit is constructed with.
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

// What a reducer is constructed with.
struct ConstructionInputs {
  std::vector<Ref<Parameter>> parameters;
  ReducerOptions options;
  Membership membership;
};

// Returns what layouts need to know about the parameters that a reducer of this program is given
// and does not ignore, each once. `parameters` are the program's, by number.
std::vector<ParameterInfo> infos_of(const std::vector<Ref<Parameter>>& parameters,
                                    const reference::Program& program);

// Changes the inputs of the rank that does not fit (of every rank, for the kind kLayout). `share`
// is the program as the first reducer sees it. The kinds of has_misfit_group() change nothing here.
void apply_misfit(const reference::Program& program, const reference::Program& share,
                  const std::vector<Ref<Parameter>>& parameters, ConstructionInputs& inputs);

// Whether the rank's group does not fit. Such a rank resets, like the others, and is
// not constructed anew beside their reset.
bool has_misfit_group(reference::MisfitKind kind);

// Returns, for the kinds of has_misfit_group(), the membership with a group that can do less than
// it could, or with a backward group of another size or rank; the program's variant says which. The
// original groups stay as they are, whatever is called on the new one.
Membership with_misfit_group(const reference::Program& program, const Membership& membership);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
