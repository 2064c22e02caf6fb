// scaling::measure(): how much the reducer sends, and how long it takes in virtual time, with more
// ranks than there are machines for. All ranks of a job run the production reducer in the
// simulator, and go through construction, two passes, the rebuild of the buckets, training with
// uneven inputs, the exit of one rank, and a reset of the others.
//
// Virtual time counts latencies alone: a message takes kHop, and computing takes no time. So a
// phase of n messages, each of which waits for the one before, takes n * kHop.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::scaling {

enum class Phase : std::uint8_t {
  kConstruction,
  kFirstPass,
  kRebuild,
  kPass,
  kUnevenInputs,  // a pass that the last rank shadows, and the end of the join
  kExitOfARank,   // from the pass in which the last rank exits to the error on every other rank
  kReset,
};
constexpr int kPhases = 7;
inline const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kConstruction: return "construction";
    case Phase::kFirstPass: return "first pass";
    case Phase::kRebuild: return "rebuild";
    case Phase::kPass: return "pass";
    case Phase::kUnevenInputs: return "uneven inputs";
    case Phase::kExitOfARank: return "exit of a rank";
    case Phase::kReset: return "reset";
  }
  return "";
}

constexpr std::uint32_t kMinRanks = 3;
constexpr std::uint32_t kMaxRanks = 1024;
constexpr double kHopUs = 10;

// What the ranks did in a phase. Messages, bytes and calls are those of the rank that has most.
struct Point {
  std::uint32_t ranks = 0;
  Phase phase = Phase::kConstruction;
  double virtual_us = 0;  // from the end of the phase before, on all ranks, to its own
  double messages = 0;    // sent
  double bytes = 0;       // sent
  double store = 0;       // calls of the rendezvous store
};

struct Run {
  std::vector<Point> points;  // one for each phase, unless there is a problem
  std::string problem;        // what went wrong; empty if every phase ended as it should
};

// Returns the exponent x for which a figure grew as ranks^x from one job to another; 0 if it did
// not grow.
inline double growth(double from, double to, std::uint32_t ranks_from, std::uint32_t ranks_to) {
  if (from <= 0 || to <= from) return 0;
  return std::log(to / from) / std::log(static_cast<double>(ranks_to) / ranks_from);
}

// Runs one job of kMinRanks to kMaxRanks ranks.
Run measure(std::uint32_t ranks);

}  // namespace lockstep::scaling
