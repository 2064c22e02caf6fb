// This component checks what a group over NCCL reports to its ranks, and how it ends, after
// events that no fault of a plan causes. A user aborts; calls fail on two ranks, one after the
// other; a rank is silent, late, gone, or never comes; NCCL accepts a collective and never runs
// it; a report is damaged, or the store is slow; a group is made smaller; a payload changes on
// its way.
//
// It judges what process_group.h and nccl_process_group.h promise: all ranks report one cause,
// soon (F2); what a rank learns besides is attached; no error says too early that time is up
// (F1); ranks that go on accept nothing from those that are in the last collective (F4); results
// are right, and of a verified collective never wrong (F3); and an idle group is finalized and
// destroyed, and a failed one aborted, once (F5).
//
// Threads: each rank's own; every rank of the group calls it once. It takes virtual time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "properties/components/choices.h"
#include "reducer/comm/nccl/nccl_process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

using components::Choices;

struct GroupOfCheck {
  std::string name;  // of its keys in the store
  int rank = 0;
  int size = 0;                    // two or more
  std::uint32_t scenario = 0;      // what happens, below kGroupScenarios
  bool notices_lost_peers = true;  // whether this NCCL does
};

constexpr std::uint32_t kGroupScenarios = 20;

// Returns a sentence about the first thing that is wrong on this rank, or an empty text. All ranks
// have equal `choices`, each its own; afterwards they list what the rank has drawn.
std::string check_nccl_group(const NcclApi& api, Device& gpu, std::shared_ptr<Store> store,
                             const GroupOfCheck& of, Choices& choices);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
