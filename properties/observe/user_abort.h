// UserAbort: the user of a rank who gives up where the fault plan says so
// (faults::Kind::kUserAbort), by the calls that the contract promises (F5): it aborts the process
// groups, on whatever thread it is or on one of its own, or its reducers, or destroys these.
//
// Threads: any thread of the rank may call visit(), also under locks of the reducer; the thread
// that trains calls the rest. In the simulator no lock here is a scheduling point.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "properties/observe/environment.h"
#include "properties/observe/training_subject.h"
#include "reducer/base/thread_safety.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class UserAbort {
 public:
  explicit UserAbort(RankEnvironment& environment) : environment_(environment) {}
  UserAbort(const UserAbort&) = delete;
  UserAbort& operator=(const UserAbort&) = delete;

  // The groups of the rank from now on. What the user did to earlier ones is forgotten.
  void take_groups(const Memberships& memberships);
  // Code of the user runs, or a collective begins or has begun: the user may abort all groups, or,
  // in a construction or a reset, the first one. With a subject it runs on the thread that trains,
  // outside of backward and of the calls of the subject that take new groups: there the user may
  // abort the reducers.
  void visit(TrainingSubject* subject = nullptr);
  // Waits for the thread that aborts the groups, if there is one.
  void join();

  bool has_aborted() const;           // all of the present groups
  bool has_aborted_reducers() const;  // and these refuse work
  bool is_to_destroy() const;         // the user destroys the reducers as soon as no call runs
  // Does so, and aborts the groups. Returns the error with which the user leaves the step. If the
  // reducers did not end as they must (F5), `wrong` says so, unless it says something already.
  Status destroy_reducers(TrainingSubject& subject, std::string& wrong);

 private:
  RankEnvironment& environment_;
  // It is not the platform's mutex, because a schedule must not depend on it: no thread waits, or
  // aborts anything, while it holds it.
  mutable std::mutex mutex_;
  // Guarded by mutex_: the members from here on.
  std::vector<std::shared_ptr<ProcessGroup>> groups_;
  bool has_aborted_ = false;
  bool ends_all_ = false;  // the last abort, whether it has ended or not
  bool has_aborted_reducers_ = false;
  std::optional<Status> to_destroy_with_;
  bool has_thread_ = false;  // one is made, or about to be
  platform::Thread thread_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
