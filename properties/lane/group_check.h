// GroupCheck: what a group over NCCL tells its ranks, and how it ends, where something happens that
// no fault of a plan does. A user gives up; calls fail on two ranks, one after the other; a rank is
// silent, late, gone, or never comes; NCCL takes a collective and does nothing with it; a report is
// damaged, or the store takes its time; a group is made smaller; a payload changes on its way.
// Chance picks some of these for a program, and all ranks of a group of the program make a further
// group for each.
//
// Judged is what process_group.h and nccl_process_group.h promise: all ranks report one cause, soon
// (F2); what a rank learns besides is attached; no error says too early that time is up (F1); the
// ranks that go on take nothing from those that are in the last collective (F4); results are right,
// and of a verified collective never wrong (F3); and an idle group
// is finalized and destroyed, and a failed one aborted, once (F5).
//
// Threads: each rank's own; every rank of the group calls it once. It takes virtual time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "reducer/comm/nccl/nccl_process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct GroupOfCheck {
  std::string name;  // of its keys in the store
  int rank = 0;
  int size = 0;  // two or more
  std::uint32_t key = 0;
  bool notices_lost_peers = true;  // whether this NCCL does
};

// How many things may happen; the key picks some, of which scenario_of() is the first.
constexpr std::uint32_t kGroupScenarios = 20;
constexpr std::uint32_t kScenariosOfKey = 3;
std::uint32_t scenario_of(std::uint32_t key);

// Returns a sentence about the first thing that is wrong on this rank, or an empty text.
std::string wrongly_told(const NcclApi& api, Device& gpu, std::shared_ptr<Store> store,
                         const GroupOfCheck& of);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
