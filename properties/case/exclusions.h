// The rows of reference/exclusions.h for what stands around a program: its environment, and the
// options of PyTorch. Plain constants; any thread.
#pragma once

#include <algorithm>

#include "properties/case/case.h"
#include "reference/exclusions.h"

namespace lockstep::properties {

inline constexpr auto kExclusionsAround = [] {
  using reference::Exclusion;
  using std::tuple;
  using C = const Case&;
  using E = Environment;
  constexpr auto kNccl = reference::Transport::kNccl;
  return tuple(
      Exclusion{"", tuple(&E::latency_seed),
                +[](C c) { return c.environment.latency == E::Latency::kNone; }},
      // Where ranks recover, others may need a rank that is done.
      Exclusion{
          "F5", tuple(&E::leaves_at_once),
          +[](C c) { return !c.faults.faults.empty() || c.program.options.transport == kNccl; }},
      // Ranks with a fault, and those that leave at once, join no further time (training.cc).
      Exclusion{"S2", tuple(&E::unlike_join),
                +[](C c) {
                  return !c.faults.faults.empty() || c.environment.leaves_at_once ||
                         c.program.options.transport == kNccl;
                }},
      Exclusion{"S2", tuple(&E::unlike_rank, &E::unlike_terminates, &E::unlike_divides_active),
                +[](C c) { return c.environment.unlike_join == E::UnlikeJoin::kNone; }},
      Exclusion{"F8",
                tuple(&E::nccl, &E::shrink_fails_on, &E::revoke_fails_on, &E::shrinks, &E::keeps,
                      &E::scales_down, &E::excludes_twice, &E::lacks_shrink),
                +[](C c) { return c.program.options.transport != kNccl; }},
      Exclusion{"F4", tuple(&E::shrink_fails_on, &E::revoke_fails_on),
                +[](C c) { return c.faults.faults.empty(); }},
      Exclusion{"F4", tuple(&E::revoke_fails_late),
                +[](C c) { return c.environment.revoke_fails_on == 0; }},
      // Faults of the network, and those that change a payload, act on what is sent.
      Exclusion{"F1", tuple(&E::shares_memory),
                +[](C c) {
                  const auto& faults = c.faults.faults;
                  return c.program.options.transport == kNccl ||
                         std::any_of(faults.begin(), faults.end(), [](const auto& fault) {
                           return faults::is_network(fault.kind) || faults::is_payload(fault.kind);
                         });
                }},
      Exclusion{"F4", tuple(&E::late_peer), +[](C c) { return !c.environment.scales_down; }},
      // Only where all ranks run the same graphs, and parameters may be unused.
      Exclusion{"G5", tuple(&TorchOptions::skip_all_reduce_unused_params), +[](C c) {
                  return c.program.options.mode == reference::Mode::kPlain ||
                         std::any_of(c.program.steps.begin(), c.program.steps.end(),
                                     [](const auto& step) { return step.variants.size() > 1; });
                }});
}();

}  // namespace lockstep::properties
