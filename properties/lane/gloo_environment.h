// GlooEnvironment: the world of one rank on the gloo lane, for ranks as threads and for ranks as
// processes. It connects over TCP on the loopback interface, and carries out the faults of the plan
// on its own rank.
//
// Threads: as RankEnvironment says. One object per rank and case.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "faults/injector.h"
#include "properties/case/case.h"
#include "properties/lane/environment.h"
#include "reducer/comm/gloo/gloo_context.h"
#include "reducer/comm/store.h"

namespace lockstep::inline LOCKSTEP_NS {

class GlooEnvironment final : public RankEnvironment {
 public:
  struct Setup {
    const properties::Case* c = nullptr;
    std::uint32_t rank = 0;
    std::shared_ptr<Store> store;  // shared by all ranks, for this case alone
    std::shared_ptr<GlooContext>
        first_context;  // of generation 0, from an earlier case; null: connect
    std::function<Resume(bool finished, std::uint32_t next_step)> meet;
    bool detailed = false;
    // Ranks as processes: what an exit and a pause do. Without them those faults do not fire.
    std::function<void(const faults::Fired& fired)> exit_process;
    std::function<void(std::uint32_t duration_us)> pause_process;
  };
  explicit GlooEnvironment(Setup setup);

  std::uint32_t rank() const override { return setup_.rank; }
  Result<Memberships> connect(const Roster& roster) override;
  platform::Duration failure_grace() const override;
  void begin_step(std::uint32_t step) override;
  void visit_node() override;
  bool exited() const override { return false; }  // a process that exits does not come back to ask
  Resume meet(bool finished, std::uint32_t next_step) override {
    return setup_.meet(finished, next_step);
  }
  bool detailed() const override { return setup_.detailed; }

  // The context of generation 0, for the next case; null if it must not be used again.
  std::shared_ptr<GlooContext> reusable_context() const;
  faults::Fired fired() const;

 private:
  Result<std::shared_ptr<GlooContext>> make_context(const std::shared_ptr<Store>& store,
                                                    const char* name, const Roster& roster);
  Result<Membership> make_membership(const Roster& roster, std::uint32_t reducer);
  bool has_usual_context() const;
  bool changes_payload() const;
  Result<std::shared_ptr<ProcessGroup>> make_group(const std::shared_ptr<GlooContext>& context);
  faults::OperationFault on_operation();
  platform::Duration timeout() const;

  const Setup setup_;
  mutable std::mutex mutex_;
  faults::Injector injector_;  // guarded by mutex_
  std::shared_ptr<GlooContext> context_;
  std::uint32_t generation_ = 0;
};

}  // namespace lockstep::inline LOCKSTEP_NS
