// The error code with which a planned fault makes a communication hook fail. Some of the codes are
// those that a process group fails with: a hook may use any (S4).
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

constexpr Code hook_error(const faults::Fault& fault) {
  return kHookErrors[fault.at / faults::kHookCalls % kHookErrors.size()];
}

// With the first of the faults that act on one call; ok without any.
inline Status failure_of_hook(const std::vector<faults::Fault>& faults) {
  return faults.empty() ? Status() : Status(hook_error(faults.front()), kHookErrorText);
}

}  // namespace lockstep::properties
