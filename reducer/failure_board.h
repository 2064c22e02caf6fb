// FailureBoard lets every surviving rank name the same first cause (contract F2).
//
// A transport tells a rank little: a connection closed, or nothing came. So each rank that fails
// writes what it knows under its own key in the group's store, closes its connections, which wakes
// its peers, and reads what the others wrote. Of a collective, the thread of the group writes it
// (early_report.h).
//
// A definite cause (an error of a rank's own) outranks everything. Which rank is the cause
// otherwise is a table of rules in failure_board.cc: of what evidence whom, and why.
//
// Threads: one call at a time.
// Waiting: settle() waits at most `grace` for peers, in rank order. After a definite cause it does
// not wait for the ranks behind it. Since all survivors must choose the same one of several causes,
// it does wait for a silent rank even if a rank behind it has a definite cause.
// Failure: what comes out of the store is not trusted. A report is not taken as a cause if it is
// damaged, belongs to another version of the library, or has numbers that no failure of its rank in
// this group can have. The rank that wrote it counts as failed, not as silent, and the failure that
// is raised says in `later` that the report was unreadable.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/comm/store.h"
#include "reducer/diagnosis/flight_record.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class FailureBoard {
 public:
  FailureBoard(std::shared_ptr<Store> store, int rank, int size);

  // Writes what this rank knows. The first report stays.
  void publish(const Failure& own);

  // Writes why this rank gave up a pass of which it had launched nothing. It is no cause, as the
  // rank may go on; but peers may wait for it there.
  void leave_note(std::int64_t reducer_id, std::int64_t pass, std::string_view reason);

  // Reads the reports of the other ranks and returns the failure to raise here: the first cause,
  // with what followed attached. Where no cause is certain, its text has the notes of ranks that
  // the others may have waited for.
  Failure settle(Failure own, platform::Duration grace, std::int64_t reducer_id = kNone);

  // Writes the flight record of this rank (T1). The first record stays.
  void publish(const FlightRecord& own);

  // Returns the flight records of all ranks that have written one by the deadline, `own` included.
  std::vector<FlightRecord> records(FlightRecord own, platform::Deadline deadline);

 private:
  using Reports = std::vector<std::optional<Failure>>;  // One entry for each rank.
  using Notes = std::map<int, std::string>;             // By rank.

  std::optional<Failure> read(std::string_view bytes, int writer) const;
  Notes read_notes(const Reports& reports, int suspect, std::int64_t reducer_id,
                   std::int64_t pass) const;

  std::shared_ptr<Store> store_;
  int rank_;
  int size_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
