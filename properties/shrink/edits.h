// Edits: the moves of the shrinker as plain data. An edit names one change of a case by position.
// Applying it to the case for which it was listed deletes or simplifies something. Not every edit
// makes a case smaller: the caller compares sizes. Internal to shrink/.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "properties/case/case.h"

namespace lockstep::properties {

// The most drastic moves come first. Positions count from the end where later items are more likely
// to be irrelevant.
enum class Move : std::uint8_t {
  kDefaultSchedule,    // the default policy, no deviations
  kDropSteps,          // level, chunk: a half of them, a quarter, ... one
  kSetWorld,           // removes the ranks above
  kDropRank,           // removes one rank; the others do what they did
  kDropFaults,         // level, chunk
  kDropParameters,     // level, chunk: their uses become sums
  kDropInputs,         // all ranks have all inputs
  kDropBuffer,         // buffer, from the last
  kMergeParameter,     // parameter: its uses become uses of the one before
  kPlainProgram,       // every step becomes one forward that uses every parameter
  kUnifyProgram,       // every rank does what rank 0 does
  kPlainStep,          // step
  kUnifyStep,          // step, variant: every rank does what this one does
  kPlainPass,          // step, variant
  kDropForward,        // step, variant, forward
  kMergeForward,       // step, variant, forward: its graph moves into the one before
  kDropBackwards,      // step, variant, how many stay
  kDefaultEverywhere,  // the number of a field: in every record
  kDropNodes,          // list, level, chunk: their consumers get their inputs
  kDropBody,           // list, node: the checkpoint becomes a sum
  kInlineBody,         // list, node: the body becomes part of the graph
  kDropInput,          // list, node, input
  kDropOutput,         // forward, output
  kDropRoot,           // backward, root
  kReshape,            // parameter, choice
  kReshapeBuffer,      // buffer, choice
  kUnshare,            // parameter
  kSimplify,           // field, choice
  kDropDeviations,     // level, chunk
  kSmallKeys,          // 0: all zero; 1: numbered
  kSeed,               // the seed of the schedule
};

struct Edit {
  Move move = Move::kDefaultSchedule;
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t c = 0;
  auto operator<=>(const Edit& other) const = default;
};

// All edits of a normalized case, ascending.
std::vector<Edit> edits_of(const Case& value);

// Applies it and normalizes. An edit that does not fit the case leaves it alone.
void apply(const Edit& edit, Case& value);

}  // namespace lockstep::properties
