// ReportCheck: whether a rank tells its peers why it fails as soon as a collective of it has
// failed, also while its backward goes on, whether what it ends its group for agrees with that, and
// whether both name a place where the rank has been (F2). The store of the group shows the first
// report, and a group around the rank's own the rest.
//
// Threads: as ProcessGroup and Store say. A reducer ends its group when it has reported, and keeps
// the Work of its last collectives until then.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/case/hook_error.h"
#include "reducer/comm/forwarding_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class ReportCheck {
 public:
  // Without `judges_times` a store may take its time. Without `judges_ends` collectives may end
  // with errors that name nothing, as those of the simulator's own group do.
  ReportCheck(bool judges_times, bool judges_ends)
      : judges_times_(judges_times), judges_ends_(judges_ends) {}
  // A step begins. It ends with end_step(), before a reducer is constructed, reset or destroyed.
  void begin_step();
  void end_step();
  // The rank writes a report of its failure. The first one stays.
  void reported(std::string_view text);
  // Somebody starts a collective in one of the rank's groups.
  void starts(const Collective& collective);
  // It has started. Only Works of steps count. Those of earlier ones are forgotten where the
  // reducer lays its buckets out anew, which begins with a broadcast.
  void started(const ProcessGroup& group, const Collective& collective, Work& work);
  // The group exists no longer; another one may have its address.
  void forget(const ProcessGroup& group);
  // Returns a sentence about what is wrong when rank `own` ends its group for this cause; an empty
  // text if nothing is, outside of steps, and from the second call on.
  std::string flaw(const Status& cause, int own);
  // The same at any time, if the peers cannot read what the rank has told them, in a group of
  // `size` ranks.
  std::string flaw_of_text(int size);

 private:
  struct Report {
    platform::Duration begun{};
    std::string text;
  };
  struct Started {
    const ProcessGroup* group = nullptr;
    Work* work = nullptr;
  };

  static std::string flaw_of_end(const Status& end, int own);
  std::string flaw_of_ends(const std::vector<Started>& works, int own,
                           std::optional<platform::Duration>& failed_at) const;
  std::string flaw_of_place(const Failure& failure) const;
  bool names_what_was_started(const Failure& failure) const;

  const bool judges_times_;
  const bool judges_ends_;
  // It is not the platform's mutex, so that no schedule changes with it. No fiber switches while it
  // is held.
  std::mutex mutex_;
  std::optional<Report> first_;
  std::vector<Started> works_;  // in the order in which they were started
  std::map<const ProcessGroup*, std::vector<Collective>> collectives_;  // by number in the group
  std::set<std::int64_t> passes_;  // of what the rank has tried to start
  std::set<int> buckets_;
  bool is_in_step_ = false;
};

class ReportingGroup final : public ForwardingGroup {
 public:
  ReportingGroup(std::shared_ptr<ProcessGroup> inner, std::shared_ptr<ReportCheck> check,
                 std::string& wrong)
      : ForwardingGroup(std::move(inner)), check_(std::move(check)), wrong_(wrong) {}
  ~ReportingGroup() override { check_->forget(*this); }
  Status start(const Collective& collective, Work& work) override {
    check_->starts(collective);
    Status status = ForwardingGroup::start(collective, work);
    if (status.ok()) check_->started(*this, collective, work);
    return status;
  }
  void abort(const Status& cause) override {
    // A user who gives up may do so before the rank has reported anything, and names nothing.
    const bool is_of_user = cause.failure().detail == properties::kAbortText;
    std::string flaw = check_->flaw_of_text(size());
    if (flaw.empty() && !is_of_user) flaw = check_->flaw(cause, rank());
    if (wrong_.empty()) wrong_ = flaw;
    ForwardingGroup::abort(cause);
  }

 private:
  const std::shared_ptr<ReportCheck> check_;
  std::string& wrong_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
