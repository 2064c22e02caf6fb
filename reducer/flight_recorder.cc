#include "reducer/flight_recorder.h"

#include <chrono>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::int64_t microseconds(platform::Duration time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

}  // namespace

FlightRecord record_flight(const TrainingPosition& position, const ProgressSnapshot& progress,
                           const Trace& trace) {
  FlightRecord record;
  record.rank = position.rank;
  record.size = position.size;
  record.reducer_id = position.reducer_id;
  record.doing = progress.doing;
  record.pass = progress.pass;
  record.failure = progress.failure;
  const std::vector<TraceEntry> entries = trace.entries();
  record.collectives.reserve(entries.size());
  for (const TraceEntry& entry : entries) {
    RecordedCollective& c = record.collectives.emplace_back();
    c.sequence = entry.sequence;
    c.number = entry.number;
    c.pass = entry.pass;
    c.what = entry.what;
    c.op = name_of(entry.op);
    c.dtype = lockstep::name_of(entry.dtype);
    c.state = entry.state;
    c.bucket = entry.bucket;
    c.count = entry.count;
    c.layout_hash = entry.layout_hash;
    c.launched_us = microseconds(entry.launched);
    c.completed_us = microseconds(entry.completed);
    if (entry.bucket == kNone || entry.layout_hash != position.layout.hash) continue;
    const auto bucket = static_cast<std::size_t>(entry.bucket);
    LOCKSTEP_CHECK_LT(bucket, position.layout.buckets.size());
    for (const BucketMember& member : position.layout.buckets[bucket].members)
      c.parameters.add(position.parameters[member.parameter].name);
  }
  record.next_sequence = trace.next_sequence();
  LOCKSTEP_CHECK(entries.empty() || entries.back().sequence + 1 == record.next_sequence);
  return record;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
