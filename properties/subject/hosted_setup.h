// HostedSetup: the group and the parameters as the C interface describes them to a subject, with
// the memory behind the description. The object must not move, and does not change after
// construction.
#pragma once

#include <vector>

#include "properties/observe/environment.h"
#include "properties/subject/lockstep_subject.h"
#include "reducer/autograd/parameter.h"
#include "reference/expectation.h"
#include "reference/program.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// The distinct tensors of a program, as the subject numbers them, and the layout that the model
// expects.
struct HostedParameters {
  HostedParameters(const std::vector<Ref<Parameter>>& parameters,
                   const reference::Program& program);

  std::vector<Ref<Parameter>> distinct;
  std::vector<reference::ExpectedBucket> buckets;  // members are indices into `distinct`
  reference::Mode mode;
  bool repeated_hooks;
};

class HostedSetup {
 public:
  HostedSetup(const HostedParameters& parameters, const ProcessGroup& group,
              platform::Duration failure_grace);
  HostedSetup(const HostedSetup&) = delete;
  HostedSetup& operator=(const HostedSetup&) = delete;

  const lockstep_setup* get() const { return &setup_; }

 private:
  std::vector<lockstep_parameter> parameters_;
  std::vector<std::vector<lockstep_member>> members_;  // by bucket
  std::vector<lockstep_bucket> buckets_;
  lockstep_setup setup_{};
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
