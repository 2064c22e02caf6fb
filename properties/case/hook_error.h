// The error code with which a planned fault (faults::Kind::kHookFails) makes a communication hook
// fail. Process groups use some of these codes, too, because a hook may use any code (S4). Pure
// functions; any thread.
#pragma once

#include <array>
#include <vector>

#include "faults/plan.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

constexpr std::array<Code, 6> kHookErrors{Code::kUserFailure, Code::kInvalidArgument,
                                          Code::kInternal,    Code::kTimeout,
                                          Code::kPeerLost,    Code::kCorrupted};
constexpr const char* kHookErrorText = "planned by the case";

// The error codes with which a user aborts (faults::Kind::kUserAbort), and the text.
constexpr std::array<Code, 3> kAbortErrors{Code::kAborted, Code::kUserFailure, Code::kTimeout};
constexpr const char* kAbortText = "the user has given up";
constexpr Code user_abort_error(const faults::Fault& fault) {
  return kAbortErrors[fault.at / faults::kAbortCalls % kAbortErrors.size()];
}

// Returns the code that the fault chooses.
constexpr Code hook_error(const faults::Fault& fault) {
  return kHookErrors[fault.at / faults::kHookCalls % kHookErrors.size()];
}

// Returns whether the fault leaves the hook's future incomplete forever. The code 'timeout' on a
// future means that.
constexpr bool never_ends(const faults::Fault& fault) {
  return fault.kind == faults::Kind::kHookFails &&
         faults::hook_call(fault) == faults::HookCall::kFuture &&
         hook_error(fault) == Code::kTimeout;
}

// Returns the error of a hook's call on which these faults act: that of the first fault, or ok if
// there is none. It is filled in as if a collective of the hook had failed because of another rank.
inline Status failure_of_hook(const std::vector<faults::Fault>& faults) {
  if (faults.empty()) return {};
  Failure failure;
  failure.code = hook_error(faults.front());
  failure.rank = failure.suspect = faults.front().rank == 0 ? 1 : 0;
  failure.collective = "all_reduce";
  failure.sequence = 0;
  failure.detail = kHookErrorText;
  return failure;
}

}  // namespace lockstep::properties
