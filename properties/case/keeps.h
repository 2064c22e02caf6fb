// keeps: for each option that must not change what comes out, the cases of which that is true.
// The rows of the table of fields name these functions (Row::keeps). Each is given two normalized
// cases that differ in one option, and in what normalize() makes of that. It says whether the
// contract promises the same results for both. The model is not asked: what a subject does with the
// two cases is compared although nobody knows what comes out.
//
// Pure functions; any thread.
#pragma once

#include "properties/case/case.h"

namespace lockstep::properties::keeps {

bool always(const Case& one, const Case& other);
// From plain mode to another: both must let every parameter get ready once in each pass (G8, P11).
// In a pass that succeeds in plain mode all parameters are reached.
bool mode(const Case& one, const Case& other);
// Sums must be the same in any order of additions (G3).
bool order(const Case& one, const Case& other);
// Buckets have other members: sums must not depend on where an element lies (G3).
bool layout(const Case& one, const Case& other);
bool rebuild(const Case& one, const Case& other);
// No hook, `allreduce`, and a hook of the user's that averages give the same bits (S4).
bool hook(const Case& one, const Case& other);
// There is a hook of the user's, whose futures and local backwards leave gradients alone (S4).
bool hook_of_user(const Case& one, const Case& other);
// Something is broadcast, in chunks (S3).
bool broadcasts(const Case& one, const Case& other);
// Returns whether no pass and no forward is local, so that what a pass leaves unused is unused.
bool without_local_use(const Case& one, const Case& other);
// Passes end by themselves, or the user ends each right after its backward
// (subject/torch/DIFFERENCES.md, 77). A forward whose outputs are dropped makes the next backward
// one of its pass, a local one, too, after which the user ends nothing (stays_armed). A further
// backward of the first static pass stays local where passes end by themselves, and may be lost
// where the user ends them.
bool finalization(const Case& one, const Case& other);
// All ranks have inputs for all steps (S2).
bool even_inputs(const Case& one, const Case& other);

// Returns whether the gradients have the same sums, bit for bit, in any order of additions: each
// group has two ranks at most, or no partial sum is ever rounded, however the mean is made of it.
// That is computed from bounds, so that a program may have exact sums although this says no.
bool has_sums_in_any_order(const reference::Program& program);

}  // namespace lockstep::properties::keeps
