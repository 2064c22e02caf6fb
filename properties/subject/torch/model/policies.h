// Policies: what PyTorch's reducer does instead of what CONTRACT.md says, one by one, as found by
// running (FINDINGS.md has a case for each), and in which versions. Each can be taken back alone,
// which shows that a case depends on it. Plain data; nothing here fails.
#pragma once

#include <array>
#include <string_view>

#include "properties/subject/torch/model/version.h"

namespace lockstep::properties::torch_model {

// By default, those of the oldest version; what came later is off.
struct Policies {
  // The factor of an average is rounded to the gradient's dtype, as float16 shows (G2).
  bool rounds_factor = true;
  // A gradient that lies in its bucket already is divided instead of multiplied (G2).
  bool divides_views = true;
  // With batched_grad_copy a whole bucket is divided instead of multiplied (G2).
  bool divides_batched = false;
  // With lazy_bucket_allocation, and views: when the first gradient of a bucket is ready, those
  // that are there move into the bucket, and are divided as divides_views says (G2).
  bool divides_lazy_views = false;
  // With skip_all_reduce_unused_params: what there is of a gradient is scaled in a bucket that is
  // left out, too, which changes gradients that are views, or sparse (G5, P9).
  bool scales_skipped = false;
  // With the same: if a bucket that is left out was reduced before, and is not lazy, the memory of
  // that result is written to its gradients, which has what is scaled now, or after a hook that
  // leaves its result elsewhere, and in a sparse gradient that is another one, the old mean (G5,
  // P9).
  bool repeats_skipped = false;
  // The communication hook that averages divides the bucket (S4).
  bool divides_in_hooks = true;
  // The one that compresses rounds to 16 bits first, and divides then (S4).
  bool compresses_first = true;
  // In view mode a gradient that lies there is scaled and summed also if no rank used it (G5).
  bool reduces_unused_views = true;
  // A sparse gradient is divided, and that before entries of one row are added to each other (S1).
  bool divides_sparse = true;
  // Lists of entries are merged where the contract has one after the other: another order of
  // additions, and a row of -0 that one of two lists has is +0 in their sum (S1, G9).
  bool merges_sparse = true;
  // A sparse gradient that is undefined when its hook, or the unused search, marks it is an error
  // (S1, G7, G8).
  bool refuses_undefined_sparse = true;
  // A sparse gradient that is there is scaled and summed also if no rank used it (G5).
  bool reduces_unused_sparse = true;
  // A gradient that is there counts as used when its hook comes without one (G6).
  bool counts_stale_as_use = true;
  // What is used in local passes alone counts as not used (P9).
  bool forgets_local_use = true;
  // What was used in local passes counts as used in the next synced one even if its gradient was
  // zeroed, or set to undefined, in between. A used gradient that is undefined is an error (G6,
  // P9).
  bool use_outlives_zero_grad = false;
  // Another process group for the reducer lets it forget what local passes used (P9).
  bool update_forgets_local_use = false;
  // A forward whose output was dropped arms the next backward, a local one too (P1, P2).
  bool stays_armed = true;
  // A synced forward arms the next backward, that of a forward under no_sync, too (P1).
  bool averages_local_backward = true;
  // The unused search looks at the outputs of the last forward alone (P1).
  bool searches_last_forward = true;
  // Missing parameters are an error of the next forward with gradients (P5).
  bool reports_missing_later = true;
  // After the pass is complete further backwards are local, without an error (P7).
  bool later_backwards_are_local = true;
  // A rank without a hook in its pass joins no collective (P8).
  bool stays_out_without_hooks = true;
  // Without unused detection there is one bucket per dtype until the first pass is complete (B1).
  bool starts_without_limits = true;
  // Static mode: until the second synced forward every backward ends as the first pass does, and if
  // that is over already, in an error (P9, P11).
  bool repeats_first_static_pass = true;
  // Static mode: the first pass is what belongs to the very first forward; with a second one before
  // its backward every hook is one too many (P1, P11).
  bool counts_one_static_forward = true;
  // Static mode: the first backward that has a hook, a local one too, is the first pass; without a
  // synced forward before it, it ends in an error (P9, P11). Without the policy the first synced
  // forward begins the first pass.
  bool first_static_pass_is_any = false;
  // Buckets are rebuilt without unused detection, and only then (B2).
  bool rebuilds_unless_dynamic = true;
  // A sum of two float16 is left out where it has the bits of the number that the bits of the
  // receiver's own value are, read as an integer: that value stays (G1, G3). Of Gloo's type.
  bool loses_half_sums = true;
  // Who needs a rank that is lost has an error that does not name it (F2).
  bool names_no_lost_rank = true;
};

// It holds from the version `since` on, up to but without the version `until`. Versions between
// those that were tested are taken for the older one of the two, except that 2.1 is known to be the
// first version with today's static mode (pytorch#103487).
struct Policy {
  std::string_view name;
  bool Policies::*member;
  Version since = kOldestVersion;
  Version until = {~0u, 0, 0};

  constexpr bool holds_in(const Version& version) const {
    return (since <= version || since == kOldestVersion) && version < until;
  }
};

// The policies, by name.
constexpr std::array<Policy, 30> kPolicies{{
    {"rounds_factor", &Policies::rounds_factor, kOldestVersion, {2, 4, 1}},
    {"divides_views", &Policies::divides_views},
    {"divides_batched", &Policies::divides_batched, {2, 15, 0}},
    {"divides_lazy_views", &Policies::divides_lazy_views, {2, 15, 0}},
    {"scales_skipped", &Policies::scales_skipped, {2, 9, 1}},
    {"repeats_skipped", &Policies::repeats_skipped, {2, 9, 1}},
    {"divides_in_hooks", &Policies::divides_in_hooks},
    {"compresses_first", &Policies::compresses_first},
    {"reduces_unused_views", &Policies::reduces_unused_views},
    {"divides_sparse", &Policies::divides_sparse},
    {"merges_sparse", &Policies::merges_sparse},
    {"refuses_undefined_sparse", &Policies::refuses_undefined_sparse},
    {"reduces_unused_sparse", &Policies::reduces_unused_sparse},
    {"counts_stale_as_use", &Policies::counts_stale_as_use},
    {"forgets_local_use", &Policies::forgets_local_use, kOldestVersion, {2, 4, 1}},
    {"use_outlives_zero_grad", &Policies::use_outlives_zero_grad, {2, 4, 1}},
    {"update_forgets_local_use", &Policies::update_forgets_local_use, {2, 4, 1}},
    {"stays_armed", &Policies::stays_armed},
    {"averages_local_backward", &Policies::averages_local_backward},
    {"searches_last_forward", &Policies::searches_last_forward},
    {"reports_missing_later", &Policies::reports_missing_later},
    {"later_backwards_are_local", &Policies::later_backwards_are_local},
    {"stays_out_without_hooks", &Policies::stays_out_without_hooks},
    {"starts_without_limits", &Policies::starts_without_limits},
    {"repeats_first_static_pass", &Policies::repeats_first_static_pass, kOldestVersion, {2, 1, 0}},
    {"counts_one_static_forward", &Policies::counts_one_static_forward, kOldestVersion, {2, 1, 0}},
    {"first_static_pass_is_any", &Policies::first_static_pass_is_any, {2, 1, 0}},
    {"rebuilds_unless_dynamic", &Policies::rebuilds_unless_dynamic},
    {"loses_half_sums", &Policies::loses_half_sums, kOldestVersion, {2, 9, 1}},
    {"names_no_lost_rank", &Policies::names_no_lost_rank},
}};

// Those of one version.
constexpr Policies policies_of(const Version& version) {
  Policies policies;
  for (const Policy& policy : kPolicies) policies.*policy.member = policy.holds_in(version);
  return policies;
}

}  // namespace lockstep::properties::torch_model
