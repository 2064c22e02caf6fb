// NamedRefusals: whether a group that has ended says, where it refuses a collective, which one that
// is (F2). What another reducer of the group, or its user, has ended the group for names no
// collective by itself.
//
// Threads: as ProcessGroup says; the sentence is written by one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "reducer/comm/forwarding_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NamedRefusals final : public ForwardingGroup {
 public:
  // The first wrong refusal goes to `wrong`, which outlives the group.
  NamedRefusals(std::shared_ptr<ProcessGroup> inner, std::string& wrong)
      : ForwardingGroup(std::move(inner)), wrong_(wrong) {}
  Status start(const Collective& collective, Work& work) override {
    Status status = ForwardingGroup::start(collective, work);
    if (status.ok() || !wrong_.empty()) return status;
    const Failure& failure = status.failure();
    // Memory may be refused before the collective has a number.
    const bool has_no_number =
        failure.code == Code::kInvalidArgument || failure.code == Code::kOutOfMemory;
    if (has_no_number || (!failure.collective.empty() && failure.sequence >= 0)) return status;
    wrong_ = "its group refuses an " + std::string(name_of(collective.op)) +
             " with an error that names no collective with its number: " + status.to_string();
    return status;
  }

 private:
  std::string& wrong_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
