// Whether who asks for the result of a collective before it is there is told so
// (reducer/comm/process_group.h).
//
// Threads: as Work says.
#pragma once

#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// `work` was started. Returns a sentence about what is wrong, or an empty text.
inline const char* flaw_of_early_wait(Work& work) {
  const Status early = work.wait(platform::Deadline::in({}));
  if (early.ok() || work.done()) return "";
  const bool is_told = early.code() == Code::kTimeout &&
                       early.failure().sequence == work.sequence() &&
                       !early.failure().detail.empty();
  return is_told ? "" : "who asks for the result of a collective too early is not told so";
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
