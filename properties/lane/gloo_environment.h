// GlooEnvironment: the environment of one rank on the gloo lane. It connects over TCP, on the
// loopback interface unless the rank has an address of its own, shares memory as the case says, and
// changes payloads as the fault plan says (F3).
//
// Threads: as RankEnvironment says. One object per rank and case.
#pragma once

#include <memory>

#include "properties/lane/real_environment.h"
#include "reducer/comm/gloo/gloo_context.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class GlooEnvironment final : public RealEnvironment {
 public:
  // `first_context`: the context of generation 0, from an earlier case. If it is null, the
  // environment connects.
  explicit GlooEnvironment(Setup setup, std::shared_ptr<GlooContext> first_context = nullptr)
      : RealEnvironment(std::move(setup)), first_context_(std::move(first_context)) {}

  Result<Memberships> connect(const Roster& roster) override;

  // Returns the context of generation 0 for the next case, or null if it must not be used again.
  std::shared_ptr<GlooContext> reusable_context() const;

 private:
  Result<std::shared_ptr<ProcessGroup>> make_group(const Place& place) override;
  Result<std::shared_ptr<GlooContext>> make_context(const Place& place);
  bool has_usual_context() const;
  bool changes_payload() const;
  bool is_late() const;

  const std::shared_ptr<GlooContext> first_context_;
  std::shared_ptr<GlooContext> context_;  // the context of the first group of the first reducer
  std::uint32_t generation_ = 0;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
