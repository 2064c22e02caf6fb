// FaultyGroup: a real process group whose collectives begin late, never begin, or end the process,
// as a fault plan says. It decorates the group of one rank on the gloo lane.
//
// A stalled collective never begins. It and all later ones wait on this rank until the group's
// timeout; then they fail with kTimeout and the group ends. Until then the peers see silence.
//
// Threads: as ProcessGroup says. A stall has a thread of its own, which the destructor joins.
// Platform `os` only.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "faults/injector.h"
#include "reducer/comm/forwarding_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class FaultyGroup final : public ForwardingGroup {
 public:
  // `on_operation` returns the fault of the next collective. It carries out exits and pauses of the
  // process itself.
  FaultyGroup(std::shared_ptr<ProcessGroup> inner,
              std::function<faults::OperationFault()> on_operation);
  ~FaultyGroup() override;

  Status start(const Collective& collective, Work& work) override;
  void abort(const Status& cause) override;

 private:
  struct Stalled {
    Collective collective;
    Work* work;
  };
  void wait_out();
  void complete_stalled(const Status& cause);

  std::function<faults::OperationFault()> on_operation_;
  platform::Mutex mutex_{"faulty_group"};
  platform::CondVar ended_{"faulty_group.ended"};
  std::vector<Stalled> stalled_ LOCKSTEP_GUARDED_BY(mutex_);
  // The sequence number of the next collective. The inner group counts the same until a collective
  // stalls.
  std::int64_t next_sequence_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool is_stalling_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool is_ended_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  Status cause_ LOCKSTEP_GUARDED_BY(mutex_);
  platform::Thread timer_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
