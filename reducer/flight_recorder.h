// record_flight() makes the flight record of a rank (T1): what the rank does, and the collectives
// that its trace holds. The caller adds the parameters that the next bucket waits for, and the
// first cause if there is one.
//
// Threads: the thread that trains.
// Memory: a record allocates; std::bad_alloc passes through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "reducer/diagnosis/flight_record.h"
#include "reducer/trace.h"
#include "reducer/training_position.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// How far a rank has got, as far as that cannot be reconstructed later.
struct ProgressSnapshot {
  FlightRecord::Doing doing = FlightRecord::Doing::kIdle;
  std::int64_t pass = 0;
  std::size_t next_bucket = 0;
  std::optional<Failure> failure;  // This rank's own failure; the first cause may be another one.
};

FlightRecord record_flight(const TrainingPosition& position, const ProgressSnapshot& progress,
                           const Trace& trace);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
