// recorded_collectives: what the flight record of a rank says of its collectives, compared with
// itself, with the rank's trace, and with its trace as text (T1). A part of the oracle on flight
// records.
//
// Pure functions; any thread.
#pragma once

#include <string>

#include "properties/observe/observation.h"
#include "properties/oracle/verdict.h"
#include "reducer/diagnosis/diagnosis.h"

namespace lockstep::properties {

RecordedCollective::What what_of(ObservedCollective::Op op);
const char* operation_of(ObservedCollective::Op op);

// The buckets that have their parameters are of one layout, and those that have none are of
// others. Returns what is wrong, or an empty text.
std::string judge_layouts(const FlightRecord& record);

// Whether the collective that the record gives the number of one that failed, if any, is that one.
bool has_number_of(const Failure& failure, const FlightRecord& record);

// Records have no gap, and the trace as text has the same collectives as the record of the moment.
Verdict judge_trace_texts(const Observation& observation);

}  // namespace lockstep::properties
