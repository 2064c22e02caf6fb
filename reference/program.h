// Program: a job, and the options of the reducers that it trains with. It says nothing about
// schedules or faults (see faults/plan.h). Plain data; no function here fails, and none keeps
// state: any thread may call them.
//
// A Program is total: any field values are a valid program. Indices are taken modulo what they
// index, counts are clamped to the limits of job.h by normalize(). Zero is the simplest choice of
// every field, so that shrinking goes to zero. job.h says how a job is run: the model follows that
// text, and so does the harness that drives a reducer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "reference/construction_disagreement.h"
#include "reference/job.h"
#include "reference/replicated.h"

namespace lockstep::reference {

struct Program : Job {
  Replicated options;
  ConstructionDisagreement disagreement;  // which all ranks must refuse first
};

// Brings every field within its limits, and gives an empty list its simplest element where one is
// needed: world 1..64, at least one parameter, one to `world` variants per step, at least one
// forward per pass, one node per forward, one output per forward. A checkpoint with an empty
// body, or one deeper than kMaxDepth, becomes a kSum. Enumerators that do not exist are taken
// modulo their number. A rank that calls no backward in a synced pass rightly fails the others
// (P8), and so only an absent one does (RankPass::absent): in a synced step either every other
// variant has a kept forward, or none has; where some have, the last forward of each variant that
// has none is kept. And where forwards are local,
// some call starts at an output of a synced one; no forward comes after the first such call, as it
// would belong to the next sync window. What is within limits already is left alone.
void normalize(Program& program);

// The variant of the step that an absent rank may take, if there is one: the first that is marked,
// if one rank takes it, that rank is not alone in its group, and another variant keeps a forward.
std::optional<std::size_t> absent_variant(const Program& program, const Step& step);

// Whether a pass can run in a checkpoint around the whole model: see Recompute.
bool may_recompute(const Program& program, const Step& step, const RankPass& pass);

// The first owners of all that is trained, in the order in which buckets are laid out at
// construction: that of registration, or one drawn from Replicated::pinned.
std::vector<std::uint32_t> construction_order(const Program& program);

// The program as one of the reducers sees it: the only reducer, which ignores all that belongs to
// the others.
Program share_of(const Program& program, std::uint32_t reducer);

// With Replicated::two_groups: the number of groups, and the group that a rank trains in.
inline std::uint32_t group_count(const Program& program) {
  return program.options.two_groups ? 2 : 1;
}
inline std::uint32_t group_of(const Program& program, std::uint32_t rank) {
  return rank % group_count(program);
}

// Whether the rank trains in the step.
bool has_input(const Program& program, std::uint32_t rank, std::uint32_t step);

}  // namespace lockstep::reference
