// change: whether a program fails, and changes that are drawn last and must not make it fail.
// Internal to generate/. Pure functions; any thread.
#pragma once

#include <utility>

#include "properties/generate/generate.h"

namespace lockstep::properties {

// Returns whether the model expects an error of the program itself.
bool fails(const reference::Program& program);
// Takes the changed program, unless it may not fail and does, where the program did not.
void take_change(bool may_fail, reference::Program changed, reference::Program& program);

// Applies a change that is drawn last, unless it makes a legal program illegal; then it undoes the
// change. This can happen in static mode, where the first pass determines what the others must be.
// In other modes it is so rare that the model runs only for a subject that must not meet an error.
template <class Change>
void change_legally(const GenerateOptions& options, reference::Program& program,
                    const Change& change) {
  reference::Program changed = program;
  change(changed);
  const bool may_fail = program.options.mode != reference::Mode::kStatic &&
                        options.capabilities.has(Capability::kErrors);
  take_change(may_fail, std::move(changed), program);
}

}  // namespace lockstep::properties
