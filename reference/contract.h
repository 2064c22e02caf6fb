// Contract: the named policies of a contract profile, those that the model consults. Profile
// `lockstep` is CONTRACT.md as it stands; profile `torch` is what PyTorch's reducer does instead,
// as it was found in version 1.13.1 (properties/subject/torch/FINDINGS.md has a case for each).
// Plain data; nothing here fails.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::reference {

struct Contract {
  std::uint32_t alignment_bytes = 64;             // of every member of a bucket (B3); 0: none
  std::uint64_t max_segment_bytes = 1024 * 1024;  // of the ring's transfers (G3)

  // Whose way of working is modelled: clause by clause (model.cc), or hook by hook
  // (torch_model.cc). The policies below are departures of the second kind, each of which can be
  // taken back alone.
  bool is_hook_by_hook = false;

  // The factor of an average is rounded to the gradient's dtype, as float16 shows (G2).
  bool rounds_factor = false;
  // A gradient that lies in its bucket already is divided instead of multiplied (G2).
  bool divides_views = false;
  // The communication hook that averages divides the bucket (S4).
  bool divides_in_hooks = false;
  // The one that compresses rounds to 16 bits first, and divides then (S4).
  bool compresses_first = false;
  // In view mode a gradient that lies there is scaled and summed also if no rank used it (G5).
  bool reduces_unused_views = false;
  // A sparse gradient is divided, and that before entries of one row are added to each other (S1).
  bool divides_sparse = false;
  // Lists of entries are merged where the contract has one after the other: another order of
  // additions, and a row of -0 that one of two lists has is +0 in their sum (S1, G9).
  bool merges_sparse = false;
  // A sparse gradient that is undefined when its hook, or the unused search, marks it is an error
  // (S1, G7, G8).
  bool refuses_undefined_sparse = false;
  // A sparse gradient that is there is scaled and summed also if no rank used it (G5).
  bool reduces_unused_sparse = false;
  // A gradient that is there counts as used when its hook comes without one (G6).
  bool counts_stale_as_use = false;
  // What is used in local passes alone counts as not used (P9).
  bool forgets_local_use = false;
  // A forward whose output was dropped arms the next backward, a local one too (P1, P2).
  bool stays_armed = false;
  // The unused search looks at the outputs of the last forward alone (P1).
  bool searches_last_forward = false;
  // Missing parameters are an error of the next forward with gradients (P5).
  bool reports_missing_later = false;
  // After the pass is complete further backwards are local, without an error (P7).
  bool later_backwards_are_local = false;
  // A rank without a hook in its pass joins no collective (P8).
  bool stays_out_without_hooks = false;
  // Without unused detection there is one bucket per dtype until the first pass is complete (B1).
  bool starts_without_limits = false;
  // Static mode: until the second synced forward every backward ends as the first pass does, and if
  // that is over already, in an error (P9, P11).
  bool repeats_first_static_pass = false;
  // Static mode: the first pass is what belongs to the very first forward; with a second one before
  // its backward every hook is one too many (P1, P11).
  bool counts_one_static_forward = false;
  // Buckets are rebuilt without unused detection, and only then (B2).
  bool rebuilds_unless_dynamic = false;
  // A sum of two float16 is left out where it has the bits of the number that the bits of the
  // receiver's own value are, read as an integer: that value stays (G1, G3). Of Gloo's type.
  bool loses_half_sums = false;
  // Who needs a rank that is lost has an error that does not name it (F2).
  bool names_no_lost_rank = false;

  static Contract lockstep();
  static Contract torch();
};

struct Policy {
  std::string_view name;
  bool Contract::*member;
};

// The departures, by name.
constexpr std::array<Policy, 22> kPolicies{{
    {"rounds_factor", &Contract::rounds_factor},
    {"divides_views", &Contract::divides_views},
    {"divides_in_hooks", &Contract::divides_in_hooks},
    {"compresses_first", &Contract::compresses_first},
    {"reduces_unused_views", &Contract::reduces_unused_views},
    {"divides_sparse", &Contract::divides_sparse},
    {"merges_sparse", &Contract::merges_sparse},
    {"refuses_undefined_sparse", &Contract::refuses_undefined_sparse},
    {"reduces_unused_sparse", &Contract::reduces_unused_sparse},
    {"counts_stale_as_use", &Contract::counts_stale_as_use},
    {"forgets_local_use", &Contract::forgets_local_use},
    {"stays_armed", &Contract::stays_armed},
    {"searches_last_forward", &Contract::searches_last_forward},
    {"reports_missing_later", &Contract::reports_missing_later},
    {"later_backwards_are_local", &Contract::later_backwards_are_local},
    {"stays_out_without_hooks", &Contract::stays_out_without_hooks},
    {"starts_without_limits", &Contract::starts_without_limits},
    {"repeats_first_static_pass", &Contract::repeats_first_static_pass},
    {"counts_one_static_forward", &Contract::counts_one_static_forward},
    {"rebuilds_unless_dynamic", &Contract::rebuilds_unless_dynamic},
    {"loses_half_sums", &Contract::loses_half_sums},
    {"names_no_lost_rank", &Contract::names_no_lost_rank},
}};

}  // namespace lockstep::reference
