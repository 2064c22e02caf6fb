// two_runs: how two runs of one program are compared, and shown below one another: those of two
// subjects (agreement.h), and those of one subject with an option switched (metamorphic.h).
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "properties/observe/observation.h"
#include "reference/program.h"

namespace lockstep::properties {

// Whether two gradients of the parameter have the same words (reference::gradient_words). If not,
// `first_difference` is the index of the first one that differs.
bool same_words(const reference::Parameter& parameter, const std::uint64_t* one,
                const std::uint64_t* other, std::uint64_t& first_difference);

// Returns a colon and two lines below one another, each with the name of a run.
std::string side_by_side(const std::string& one, const std::string& a, const std::string& other,
                         const std::string& b);

// What became of a step: "succeeds", "fails: ...", or, for a null pointer, "did not come to it".
std::string outcome_of_step(const ObservedStep* step);

// A gradient of one of the runs; the bits are those of its rank.
struct GradientOfRun {
  const std::string& name;  // of the run
  const std::vector<std::uint64_t>& bits;
  const ObservedGradient& gradient;
};
struct GradientsDiffer {
  std::string text;                      // where and how; empty if they do not differ
  std::optional<std::uint64_t> element;  // the word that differs, if both are defined
};
GradientsDiffer compare_gradients(const reference::Parameter& parameter, const GradientOfRun& one,
                                  const GradientOfRun& other);

}  // namespace lockstep::properties
