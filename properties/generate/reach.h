// reach: the draws that take a case beyond the usual: many ranks, many parameters, values near the
// largest finite ones, and parameters and gradients whose memory is neither row-major nor
// column-major. Internal to generate/. Each draw has random numbers of its own, so that other
// choices stay what they are. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// The most ranks that the generator draws. A case file may have reference::kMaxWorld.
constexpr std::uint32_t kMaxDrawnWorld = 16;
// Cases with more than these are rare, because each costs as much as several others.
constexpr std::uint32_t kFewRanks = 8;
constexpr std::uint32_t kFewParameters = 12;

// How large a case is. 0 leaves a number to the usual draw.
struct Extent {
  std::uint32_t ranks = 0;
  std::uint32_t parameters = 0;
  bool has_bucket_each = false;   // every parameter has a bucket of its own
  std::uint32_t most_steps = 64;  // large cases are short
  std::uint32_t most_parameters = 64;
  std::uint32_t most_variants = 64;  // of one step
};
Extent draw_extent(Random random, const GenerateOptions& options);

// Whether the parameter is the same tensor as an earlier one, or another replica's copy of it. If
// so, all its other fields follow that parameter.
bool follows_owner(reference::Program& program, std::size_t index);

// Parameters of three and four dimensions that lie in memory in any order of dimensions, and
// gradients whose memory has holes.
void draw_strides(Random random, const GenerateOptions& options, reference::Program& program);

// Values near the largest finite ones, if all gradients that the model expects are finite with
// them. So it is drawn last.
void draw_largest(Random random, reference::Program& program);

// The names of what a case has of these (features.h).
std::vector<std::string> reach_features(const Case& value);

}  // namespace lockstep::properties
