// Diagnosis: the accounts of all ranks, joined (contract T1, F6): the odd rank out, the first
// collective in which ranks differ, what holds back the next bucket on each, and who waits for
// whom.
//
// The first difference counts most: a rank whose collective is another one than that of most ranks
// is odd, or one that has not started it. With as many ranks on either side nobody can tell; then
// the one that went on without a collective of the others counts as odd, and the text has both
// sides. Where no collectives differ, a rank that failed by itself is odd, then those that told
// nothing, and those that have not come to a collective, unless one before it failed that all had
// come to. Pure functions; nothing is printed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reducer/diagnosis/flight_record.h"

namespace lockstep {

struct Diagnosis {
  // The ranks that started the same at the place where ranks differ.
  struct Side {
    std::vector<int> ranks;
    std::optional<RecordedCollective> collective;  // none: they have not come to it
  };
  struct Difference {
    std::int64_t sequence = 0;
    std::vector<Side> sides;  // the largest first
  };
  struct Wait {
    int rank = 0;
    std::int64_t sequence = kNone;  // of the collective that it waits in
    std::vector<int> ranks;         // for whom; empty: all have come, and it has not ended
  };

  int size = 0;
  std::vector<FlightRecord> records;  // by rank
  std::vector<int> silent;            // ranks without an account
  std::vector<int> suspects;          // the odd ranks out
  std::string reason;                 // why they are
  std::optional<Difference> difference;
  std::vector<Wait> waits;

  bool clean() const;  // no rank is odd, failed, waits or differs: there is nothing to tell
  std::string to_string() const;
};

// kInvalidArgument if the accounts are not those of one group.
Result<Diagnosis> diagnose(std::vector<FlightRecord> records);

// "rank 1", "ranks 0 2-4".
std::string rank_list(const std::vector<int>& ranks);

}  // namespace lockstep
