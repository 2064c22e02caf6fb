// Readiness: what the backward calls of one rank come to, as its hooks alone decide it: which
// parameters are ready, or in which error the rank ends (P5, P6, P7, P11, P16), and what that means
// for the others. The values of gradients do not matter here. Pure functions; any thread; nothing
// fails.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/expectation.h"
#include "reference/model/gradient.h"

namespace lockstep::reference {

using HookCounts = std::vector<std::uint32_t>;  // by parameter

// What a rank knows when a pass begins. Static mode alone has the last two (P11): how often the
// hooks of each parameter ran in the rank's first synced pass, and which parameters some rank used
// in the first one of the group. Neither is known before such a pass.
struct PassRules {
  const ParameterRoles& roles;
  const Replicated& options;
  const std::optional<HookCounts>& hooks_expected;
  const std::optional<std::vector<bool>>& used_set;
  // The synced pass of the step before, if the rank holds its outputs.
  const RankPass* held = nullptr;

  bool is_dynamic() const { return options.mode == Mode::kDynamic; }
  bool counts_hooks() const { return options.mode == Mode::kStatic && !hooks_expected; }
};

struct RankReadiness {
  Error error = Error::kNone;
  std::uint32_t error_call = 0;           // the meaning is that of ExpectedRankStep
  std::vector<std::uint32_t> parameters;  // the same
  std::vector<std::uint32_t> requiring;   // the same
  std::uint32_t calls_run = 0;            // how many backward calls ran hooks
  std::uint32_t calls_reduced = 0;        // how many of them ran before the pass was complete
  bool has_begun = false;                 // a call of the pass has begun
  bool is_complete = false;               // the rank's part of the pass ended without an error
  HookCounts hooks_run;                   // in all of them
  std::vector<std::uint32_t> missing;     // the parameters whose hooks did not all run
  // Of these two gradients arrived, and time decides which one is reduced (P6).
  std::vector<std::uint32_t> ambiguous;

  // The parameters whose hook raises before it touches their gradient (P6).
  std::vector<std::uint32_t> ready_twice() const {
    return error == Error::kReadyTwice ? parameters : std::vector<std::uint32_t>{};
  }
};

// `gradients` are those before the calls. A local pass is not checked for anything.
RankReadiness local_readiness(std::size_t parameters, const Calls& calls);
RankReadiness readiness(const PassRules& rules, const RankPass& pass, const Calls& calls,
                        const Gradients& gradients);

// Whether the ranks start anything together in the pass that they would notice the lack of.
bool has_collectives(const PassRules& rules, const std::vector<ExpectedBucket>& buckets);

// Whether a rank with an error withholds a bucket without which no other rank can end its pass.
bool withholds_buckets(const PassRules& rules, const std::vector<ExpectedBucket>& buckets,
                       const RankReadiness& rank);

}  // namespace lockstep::reference
