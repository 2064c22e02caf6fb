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

// How large a case is.
struct Extent {
  std::uint32_t ranks = 0;            // 0: as the usual draw says
  std::uint32_t parameters = 0;       // 0: as the usual draw says
  std::uint32_t more_parameters = 0;  // that draw_many_parameters() adds
  bool has_bucket_each = false;       // every parameter has a bucket of its own
  std::uint32_t most_steps = 64;      // large cases are short
  std::uint32_t most_parameters = 64;
  std::uint32_t most_variants = 64;  // of one step
};
// Draws a large case now and then, within the limits of `options`, and otherwise the default.
Extent draw_extent(Random random, const GenerateOptions& options);

// Adds the parameters of the extent, in front of all others or behind them, and uses of them. Such
// a case has few steps and ranks. Call it as soon as the program is drawn.
void draw_many_parameters(Random random, const GenerateOptions& options, const Extent& extent,
                          reference::Program& program);

// Whether the parameter is the same tensor as an earlier one, or another replica's copy of one. If
// so, it gets the fields of that parameter; a copy keeps its own key and device.
bool follows_owner(reference::Program& program, std::size_t index);

// In some cases gives parameters three or four dimensions, which lie in memory in any order, or
// gives gradients memory with gaps, or both.
void draw_strides(Random random, const GenerateOptions& options, reference::Program& program);

// In some cases makes the values those near the largest finite ones, if all gradients that the
// model expects are finite then. Because it asks the model, call it after all other draws.
void draw_largest(Random random, const GenerateOptions& options, reference::Program& program);

// Returns the names of the features of these draws that a case has (features.h).
std::vector<std::string> reach_features(const Case& value);

}  // namespace lockstep::properties
