#include "properties/subject/diagnosis_check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "properties/case/hook_error.h"
#include "reducer/failure_board.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// Collectives may end while the diagnosis is made. Then its record need not be that of either
// moment.
std::string flaw_of_own(const FlightRecord& told, const std::string& before,
                        const std::string& after) {
  const std::string text = to_text(told);
  if (before != after || text == before) return {};
  return "its own flight record is\n" + before + "and the diagnosis has\n" + text;
}

std::string flaw_of_peer(const FlightRecord& told, const FlightRecord& own) {
  if (told.size == own.size && told.reducer_id == own.reducer_id) return {};
  return "the diagnosis has a record of another reducer:\n" + to_text(told);
}

// The rank whose own error this rank has reported; kNone if there is none, or it is this rank.
int peer_at_fault(const DataParallel& parallel, int own_rank) {
  const Status& status = parallel.poisoned();
  if (status.ok() || !status.failure().definite || status.failure().rank == own_rank) return kNone;
  switch (status.code()) {
    case Code::kIncomplete:
    case Code::kReadyTwice:
    case Code::kUsageChanged:
    case Code::kRequiresGrad:
      return status.failure().rank;
    // A user who aborts ends a collective, and the group's thread reports that at once. The rank
    // leaves its record when a call of it fails.
    case Code::kUserFailure:
      return status.failure().detail == properties::kAbortText ? kNone : status.failure().rank;
    default:
      return kNone;
  }
}

}  // namespace

std::string flaw_of_diagnosis(const DataParallel& parallel, bool keeps_records) {
  const std::string before = to_text(parallel.flight_record());
  const Result<Diagnosis> diagnosis = parallel.diagnose(platform::Duration(0));
  const FlightRecord own = parallel.flight_record();
  const std::string after = to_text(own);
  if (!diagnosis) return "there is no diagnosis: " + diagnosis.error().to_string();
  if (diagnosis->size != own.size)
    return "the diagnosis is one of " + std::to_string(diagnosis->size) + " ranks";
  std::vector<int> ranks = diagnosis->silent;
  for (const FlightRecord& told : diagnosis->records) {
    ranks.push_back(told.rank);
    std::string flaw =
        told.rank == own.rank ? flaw_of_own(told, before, after) : flaw_of_peer(told, own);
    if (!flaw.empty()) return flaw;
  }
  std::sort(ranks.begin(), ranks.end());
  bool is_each_once = ranks.size() == static_cast<std::size_t>(own.size);
  for (std::size_t i = 0; i < ranks.size(); ++i)
    is_each_once = is_each_once && ranks[i] == static_cast<int>(i);
  const auto& silent = diagnosis->silent;
  if (!is_each_once || std::find(silent.begin(), silent.end(), own.rank) != silent.end())
    return "the diagnosis does not have each rank once:\n" + diagnosis->to_string();
  const int cause = peer_at_fault(parallel, own.rank);
  if (keeps_records && std::find(silent.begin(), silent.end(), cause) != silent.end())
    return "the diagnosis has no flight record of rank " + std::to_string(cause) +
           ", which reported its error:\n" + diagnosis->to_string();
  for (const FlightRecord& told : diagnosis->records)
    if (keeps_records && told.rank == cause && !told.failure)
      return "the flight record of rank " + std::to_string(cause) +
             ", which reported its error, is of a time before it:\n" + diagnosis->to_string();
  return {};
}

std::string flaw_of_note(const DataParallel& parallel, std::shared_ptr<Store> store) {
  const FlightRecord own = parallel.flight_record();
  if (!parallel.poisoned().ok() || !own.failure || own.size == 1) return {};
  const int peer = own.rank == 0 ? 1 : 0;
  Failure waiting;
  waiting.code = Code::kTimeout;
  waiting.pass = own.failure->pass;
  waiting.suspect = own.rank;
  const Failure told = FailureBoard(std::move(store), peer, own.size)
                           .settle(waiting, platform::Duration(0), own.reducer_id);
  const std::string begin = "; rank " + std::to_string(own.rank) + " raised in pass " +
                            std::to_string(waiting.pass) + " before it had launched anything: '" +
                            name_of(own.failure->code);
  if (told.definite || told.detail.find(begin) != std::string::npos) return {};
  return "it gave up a pass before it had launched anything, with " + own.failure->to_string() +
         "; a peer that waits for it learns " + told.to_string();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
