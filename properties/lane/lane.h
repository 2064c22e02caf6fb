// Lane: an environment in which a case runs on a subject. `sim` is deterministic, on one thread, in
// virtual time; `gloo` is real TCP, with ranks as threads or as processes; `nccl` is a GPU, with
// ranks as processes; `hosts` is real TCP between ranks on hosts of their own.
//
// Threads: one caller. A lane reuses what is expensive to set up (stacks, connections) from one
// case to the next. Failure: the Observation holds any failure of the case. A subject may end or
// hang the process: see cli/server.h.
#pragma once

#include <cstdint>
#include <memory>

#include "properties/case/case.h"
#include "properties/observe/observation.h"
#include "properties/subject/subject.h"
#include "reference/expectation.h"

namespace lockstep::properties {

enum class LaneKind : std::uint8_t { kSim, kGloo, kNccl, kHosts };
const char* name_of(LaneKind kind);

class Lane {
 public:
  virtual ~Lane() = default;
  // `expectation` is the model's, without recoveries: it says where the program itself must fail.
  virtual void run(const Case& c, const reference::Expectation& expectation,
                   Observation& observation) = 0;
  // Whether the machine let a rank of the last run wait for a processor nearly all the time
  // (process/processor_time.h): what it missed, it missed for want of time. Observation::waited_s
  // is the finer measure, for lanes whose timeouts are short.
  virtual bool was_starved() const { return false; }
};

// Whether this program has the lane for the subject, and for the one beside it (real_lanes.h).
bool has_lane(LaneKind kind, const Subject& subject);

std::unique_ptr<Lane> make_lane(LaneKind kind, const Subject& subject);  // requires has_lane()

}  // namespace lockstep::properties
