// How PyTorch adds sparse gradients (hook_model.h). Pure; any thread; nothing fails.
#pragma once

#include "reference/sparse.h"

namespace lockstep::properties::torch_model {

using reference::Entries;
using reference::Parameter;

// The sum of two lists of entries: whichever of their next entries has the lower row goes first, if
// both have the same one their sum does. Lists whose rows are not ascending are walked the same
// way, so that a row may be there several times. Values are added to zeros, unless one list is
// empty.
Entries merged(const Parameter& parameter, const Entries& one, const Entries& other);

// Adds `next` to `into`: as merged() does, or by putting it behind. Returns false where PyTorch has
// no means to: of float16, if both have entries.
[[nodiscard]] bool add_entries(const Parameter& parameter, bool merges, Entries& into,
                               const Entries& next);

// Whether the additions of entries of one row have a certain order: longer lists are sorted by an
// algorithm that is free to exchange equal ones. Two have the same sum in either order.
bool has_stable_order(const Entries& entries);

}  // namespace lockstep::properties::torch_model
