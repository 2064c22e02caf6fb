// The process of one rank, which measures one NCCL library as it is told.
//
// A request is a JSON object whose field "do" names one of the commands of rank_process.cc; the
// reply has what was measured, or "error" and "code". Times are nanoseconds of the one clock that
// all processes of a machine share; the process that asks puts those of all ranks together.
//
// Threads: the process's one, besides those of NCCL, the group and the device.
#pragma once

#include <string>
#include <vector>

#include "properties/compare/meeting_point.h"
#include "properties/compare/operation.h"
#include "properties/compare/way.h"
#include "properties/lane/nccl_setup.h"
#include "properties/process/child.h"

namespace lockstep::properties {

struct RankPlace {
  int rank = 0;
  int ranks = 1;
  Way way;
  NcclSetup setup;
  bool is_pinned = true;  // to one channel, Ring and Simple; otherwise NCCL chooses
  std::string run;        // the same for all ranks, and another for every set of ranks
  std::string folder;     // shared by the ranks: their store, and the bits that came out
  std::string plan;       // of the plug-in's faults; empty: none
};

// Serves until the other end is gone. `everyone` is for all ranks, `survivors` for all but the last
// one.
void serve_rank(ChildLine& line, const RankPlace& place,
                const std::vector<PreparedOperation>& operations, const MeetingPoint& everyone,
                const MeetingPoint& survivors);

}  // namespace lockstep::properties
