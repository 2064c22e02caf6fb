// Profile: whose behaviour a subject is held to. Lockstep's is CONTRACT.md; PyTorch's is what its
// reducer does instead (properties/subject/torch/model). Plain data; any thread; nothing fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/case/case.h"
#include "properties/subject/expected.h"
#include "properties/subject/torch/model/policies.h"
#include "reference/contract.h"
#include "reference/model.h"

namespace lockstep::properties {

struct Profile {
  enum class Kind : std::uint8_t { kLockstep, kTorch };

  Kind kind = Kind::kLockstep;
  torch_model::Policies policies;  // kTorch
  // kLockstep: the release of NCCL in the simulator (faults/sim/nccl/nccl_profile.h), by name;
  // empty: the one that the simulator has by itself. The order of additions is that release's.
  std::string nccl;
  // kLockstep: how the subject adds and scales, where it declares that (declared_sums.h).
  reference::DeclaredSums sums;
  // The subject is known by its gradients and by which of its calls raise. Its collectives, the
  // storage of its gradients and what its errors name are not looked at.
  bool gradients_alone = false;
  // The subject may add in any order, round the average where it likes, and lay out its buckets
  // itself. Cases have values of which every sum and average is exact then, and the collectives,
  // the place of gradients and what errors name are not looked at (fuzz --values exact).
  bool any_arithmetic = false;

  static Profile lockstep() { return {}; }
  // Of the system's version, or of another one.
  static Profile torch() { return of_torch({}); }
  static Profile torch(const torch_model::Version& version) {
    return of_torch(torch_model::policies_of(version));
  }
  static Profile of_torch(const torch_model::Policies& policies) {
    Profile profile;
    profile.kind = Kind::kTorch;
    profile.policies = policies;
    return profile;
  }
  bool is_torch() const { return kind == Kind::kTorch; }
  // Whether an error is judged by the call that raises it, and not by what it names.
  bool judges_calls_alone() const { return is_torch() || gradients_alone || any_arithmetic; }
};

// What the profile's model expects of the program of a case. The profile of PyTorch takes no
// `ready_orders`: its model knows in which order gradients get ready.
Expected expectation_of(const Case& value, const Profile& profile,
                        const std::vector<reference::Recovery>& recoveries = {},
                        const std::vector<reference::ReadyOrder>& ready_orders = {});

// The steps of the case before the first one of which the model cannot tell what comes out.
std::uint32_t modelled_steps(const Case& value, const Profile& profile);

}  // namespace lockstep::properties
