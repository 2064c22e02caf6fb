// fault_kinds: which kinds of faults a lane can carry out. Internal to generate/; what `--faults`
// names is read here, too. Pure functions; any thread.
#pragma once

#include "properties/generate/generate.h"

namespace lockstep::properties {

// The kinds that the harness of real processes can carry out (see faults/plan.h).
constexpr FaultKinds kGlooKinds = FaultKinds()
                                      .with(faults::Kind::kOperationDelay)
                                      .with(faults::Kind::kOperationStall)
                                      .with(faults::Kind::kRankExit)
                                      .with(faults::Kind::kRankPause)
                                      .with(faults::Kind::kNodeThrows)
                                      .with(faults::Kind::kSlowThread)
                                      .with(faults::Kind::kHookFails)
                                      .with(faults::Kind::kPayloadFlip)
                                      .with(faults::Kind::kPayloadTruncate)
                                      .with(faults::Kind::kPayloadSwap)
                                      .with(faults::Kind::kPayloadStale)
                                      .with(faults::Kind::kPayloadShift)
                                      .with(faults::Kind::kUserAbort);
// NCCL's net plug-in adds these (lane/nccl_plan.h). It has no frames to truncate.
constexpr FaultKinds kNcclKinds = kGlooKinds.with(faults::Kind::kMessageDelay)
                                      .with(faults::Kind::kMessageStall)
                                      .with(faults::Kind::kLinkReset)
                                      .with(faults::Kind::kOperationError)
                                      .without(faults::Kind::kPayloadTruncate)
                                      .without(faults::Kind::kPayloadSwap)
                                      .without(faults::Kind::kPayloadStale)
                                      .without(faults::Kind::kPayloadShift)
                                      .without(faults::Kind::kUserAbort);

}  // namespace lockstep::properties
