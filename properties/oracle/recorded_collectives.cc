#include "properties/oracle/recorded_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace lockstep::properties {
namespace {

// The line of the trace for a collective of the flight record (T1).
std::string line_of(const RecordedCollective& recorded) {
  std::string what = recorded.name();
  if (recorded.what == RecordedCollective::What::kBucket)
    what += recorded.parameters.empty()
                ? " of an earlier layout"
                : fmt::format(" ({})", fmt::join(recorded.parameters.first, " "));
  return fmt::format("#{} pass {} {} {} {} x {}, {}\n", recorded.shown_number(), recorded.pass,
                     recorded.op, what, recorded.count, recorded.dtype,
                     lockstep::name_of(recorded.state));
}

}  // namespace

RecordedCollective::What what_of(ObservedCollective::Op op) {
  using What = RecordedCollective::What;
  switch (op) {
    case ObservedCollective::Op::kAllReduceUsage:
      return What::kUsageMap;
    case ObservedCollective::Op::kBroadcastOrder:
      return What::kOrder;
    case ObservedCollective::Op::kBroadcastBuffers:
      return What::kState;
    case ObservedCollective::Op::kAnnounce:
      return What::kJoin;
    default:
      return What::kBucket;
  }
}
const char* operation_of(ObservedCollective::Op op) {
  switch (op) {
    case ObservedCollective::Op::kBroadcastOrder:
    case ObservedCollective::Op::kBroadcastBuffers:
      return "broadcast";
    case ObservedCollective::Op::kGatherSparse:
      return "all_gather";
    default:
      return "all_reduce";
  }
}

std::string judge_layouts(const FlightRecord& record) {
  std::optional<std::uint64_t> layout;
  for (const RecordedCollective& each : record.collectives) {
    if (each.what != RecordedCollective::What::kBucket || each.parameters.empty()) continue;
    if (each.layout_hash == 0 || (layout && *layout != each.layout_hash))
      return fmt::format("gives #{} another layout than a bucket of its own", each.sequence);
    layout = each.layout_hash;
  }
  for (const RecordedCollective& each : record.collectives) {
    const bool is_old = each.what == RecordedCollective::What::kBucket && each.parameters.empty();
    if (is_old && layout == each.layout_hash)
      return fmt::format("does not name the parameters of #{}", each.sequence);
  }
  return "";
}

bool has_number_of(const Failure& failure, const FlightRecord& record) {
  for (const RecordedCollective& each : record.collectives)
    if (each.number == failure.sequence)
      return each.bucket == failure.bucket && each.pass == failure.pass;
  return true;
}

Verdict judge_trace_texts(const Observation& observation) {
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank) {
    for (const ObservedFlightRecord& each : observation.ranks[rank].records) {
      const auto& collectives = each.record.collectives;
      for (std::size_t i = 1; i < collectives.size(); ++i)
        if (collectives[i].sequence != collectives[i - 1].sequence + 1)
          return {Failing::kWrongError, "diagnosis",
                  fmt::format("rank {}: it records its collectives with a gap", rank)};
      const bool is_long = std::any_of(collectives.begin(), collectives.end(),
                                       [](const RecordedCollective& recorded) {
                                         return recorded.parameters.count > lockstep::Names::kKept;
                                       });
      if (each.trace.empty() || is_long) continue;
      std::string expected;
      for (const RecordedCollective& recorded : collectives) expected += line_of(recorded);
      if (each.trace != expected)
        return {Failing::kWrongError, "diagnosis",
                fmt::format("rank {}: the trace reads\n{}and its collectives are\n{}", rank,
                            each.trace, expected)};
    }
  }
  return {};
}

}  // namespace lockstep::properties
