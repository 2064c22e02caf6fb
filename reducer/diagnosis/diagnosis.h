// Diagnosis joins the flight records of all ranks (contract T1, F6). It names the suspected ranks,
// the first collective in which ranks differ, what each rank's next bucket waits for, and which
// rank waits for which.
//
// The first difference counts most: a rank is a suspect if its collective differs from that of most
// ranks, or if it has not started that collective. With equally many ranks on both sides nobody can
// tell which side is right; then the suspect is the rank that went on without a collective of the
// others, and the text shows both sides. Where no collectives differ, a rank that failed by itself
// is the suspect. Without one, it is the ranks that left no record; then those that aborted the
// group, as others say, and met no failure themselves; and then the ranks that have not started a
// collective, unless an earlier collective, which all ranks had started, failed.
// These are pure functions; nothing is printed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reducer/diagnosis/flight_record.h"

namespace lockstep {

struct Diagnosis {
  // The ranks that started the same collective where ranks differ.
  struct Side {
    std::vector<int> ranks;
    std::optional<RecordedCollective> collective;  // None if these ranks have not started it.
  };
  struct Difference {
    std::int64_t sequence = 0;
    std::vector<Side> sides;  // The side with the most ranks comes first.
  };
  struct Wait {
    int rank = 0;
    std::int64_t sequence = kNone;  // The sequence number of the collective that the rank waits in.
    std::vector<int> ranks;         // Those that have not started it, as their records show.
    std::vector<int> untold;        // Those without a record, or whose record no longer holds it.
  };

  int size = 0;
  std::vector<FlightRecord> records;  // In rank order.
  std::vector<int> silent;            // The ranks without a flight record.
  std::vector<int> suspects;          // The suspected ranks.
  std::string reason;                 // Why these ranks are suspected.
  std::optional<Difference> difference;
  std::vector<Wait> waits;

  // True if there is nothing to report: no rank is suspected, failed or waits, and no collectives
  // differ.
  bool clean() const;
  std::string to_string() const;
};

// Returns kInvalidArgument if the flight records do not belong to one group.
Result<Diagnosis> diagnose(std::vector<FlightRecord> records);

// Formats a list of ranks: "rank 1", "ranks 0 2-4".
std::string rank_list(const std::vector<int>& ranks);

}  // namespace lockstep
