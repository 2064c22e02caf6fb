// RealEnvironment: the environment of one rank on the lanes in real time, gloo and nccl, for ranks
// as threads and as processes. It carries out the faults of the plan on its own rank. The lane
// implements the transport between the ranks (make_group).
//
// Threads: as RankEnvironment says. One object per rank and case.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "faults/injector.h"
#include "properties/case/case.h"
#include "properties/observe/environment.h"
#include "reducer/comm/store.h"

namespace lockstep::properties {
struct RankJob;
}

namespace lockstep {
inline namespace LOCKSTEP_NS {

class RealEnvironment : public RankEnvironment {
 public:
  struct Setup {
    const properties::Case* c = nullptr;
    std::uint32_t rank = 0;
    std::shared_ptr<Store> store;  // shared by all ranks, for this case alone
    std::function<Resume(bool finished, std::uint32_t next_step)> meet;
    bool detailed = false;
    std::function<std::string()> lacking;  // see RankObservation; may be empty
    // For ranks as processes: these carry out an exit and a pause. Without them those faults do not
    // fire.
    std::function<void(const faults::Fired& fired)> exit_process;
    std::function<void(std::uint32_t duration_us)> pause_process;
    // For ranks on machines of their own.
    std::string address;  // where the other ranks reach this one
    std::function<void(const std::vector<faults::Fault>& faults)> begin_host_faults;
    // The others go on without the rank, which is stopped, or is cut off and goes on.
    std::function<void(bool is_cut_off, std::uint32_t duration_us)> leave_group;
    std::optional<Joining> joining;
  };
  explicit RealEnvironment(Setup setup);
  static Setup setup_of(const properties::RankJob& job);

  std::uint32_t rank() const override { return setup_.rank; }
  const properties::Environment& of_case() const override { return the_case().environment; }
  std::optional<Joining> joining() const override { return setup_.joining; }
  void begin_connect(std::uint32_t step) override;
  Result<Memberships> connect(const Roster& roster) override;
  platform::Duration failure_grace() const override;
  void begin_step(std::uint32_t step) override;
  void begin_reset(std::uint32_t step) override;
  bool wants_states() const override { return !the_case().faults.faults.empty(); }
  void set_state(faults::ReducerState state) override;
  void visit_node() override;
  Status visit_hook(faults::HookCall call) override;
  std::optional<faults::Fault> visit_user_place() override;
  bool exited() const override { return false; }  // a process that exits never asks again
  Resume meet(bool finished, std::uint32_t next_step) override {
    return setup_.meet(finished, next_step);
  }
  bool leaves_at_once() const override { return of_case().leaves_at_once; }
  bool detailed() const override { return setup_.detailed; }

  faults::Fired fired() const;
  std::string lacking() const { return setup_.lacking ? setup_.lacking() : std::string(); }

 protected:
  // One of the groups of the rank.
  struct Place {
    std::shared_ptr<Store> store;  // of this group alone
    const char* name;  // "first", or "second" for the second of the reducer's two groups
    std::vector<std::uint32_t> members;
    std::uint32_t generation;
    std::uint32_t reducer;
    int rank;  // the rank in this group
    int size() const { return static_cast<int>(members.size()); }
    bool is_first() const { return generation == 0 && reducer == 0 && name[0] == 'f'; }
  };
  virtual Result<std::shared_ptr<ProcessGroup>> make_group(const Place& place) = 0;

  const properties::Case& the_case() const { return *setup_.c; }
  const std::string& address() const { return setup_.address; }  // empty: the loopback interface
  const reference::Program& program() const { return setup_.c->program; }
  platform::Duration timeout() const;
  // Calls body(injector) on one thread at a time.
  template <class Body>
  auto with_injector(Body body) {
    const std::scoped_lock lock(mutex_);
    return body(injector_);
  }

 private:
  Result<Membership> make_membership(const Roster& roster, std::uint32_t reducer);
  Result<std::shared_ptr<ProcessGroup>> make_faulty_group(const Place& place);
  faults::OperationFault on_operation();

  const Setup setup_;
  mutable std::mutex mutex_;
  faults::Injector injector_;  // guarded by mutex_
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
