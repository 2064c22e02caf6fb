// Edits: the moves of the shrinker as plain data. An edit names one change of a case, by position;
// applying it to the case it was listed for makes a copy with something deleted or simplified. Not
// every edit makes a case smaller: the caller compares sizes. Internal to shrink/.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "properties/case/case.h"

namespace lockstep::properties {

// Most drastic first. Positions count from the end where later things are likelier to be of no use.
enum class Move : std::uint8_t {
  kDefaultSchedule,    // the default policy, no deviations
  kDropSteps,          // level, chunk: a half of them, a quarter, ... one
  kSetWorld,           // ranks above go
  kDropRank,           // one rank goes; the others keep what they do
  kDropFaults,         // level, chunk
  kDropParameters,     // level, chunk: uses of them become sums
  kDropInputs,         // all ranks have all
  kDropBuffer,         // buffer, from the last
  kMergeParameter,     // parameter: uses of it become uses of the one before
  kPlainProgram,       // every step becomes one forward that uses every parameter
  kUnifyProgram,       // every rank does what rank 0 does
  kPlainStep,          // step
  kUnifyStep,          // step, variant: every rank does what this one does
  kPlainPass,          // step, variant
  kDropForward,        // step, variant, forward
  kMergeForward,       // step, variant, forward: its graph goes into the one before
  kDropBackwards,      // step, variant, how many stay
  kDefaultEverywhere,  // field number: in every record
  kDropNodes,          // list, level, chunk: what consumes them gets their inputs
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
