// The tools of corruption_test.cc. The test records the observation of a case, changes one field of
// it, and asks the oracles whether they see the change. Changed is such an observation, and Field
// is a field with the way to change it.
//
// For tests, on one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <ostream>
#include <vector>

#include "properties/case/case.h"
#include "properties/generate/random.h"
#include "properties/observe/observation.h"
#include "properties/oracle/unspecified.h"
#include "properties/subject/expected.h"

namespace lockstep::properties {

struct Recorded {
  std::uint64_t index = 0;
  Case value;
  Observation observation;
  Expected expectation;

  const reference::ExpectedRankStep& expected(std::size_t rank, std::uint32_t step) const {
    return expectation.steps[step].ranks[rank];
  }
};

// A step of a rank in the observation that is being changed.
struct At {
  std::size_t rank;
  ObservedStep& step;
};

// One observation, of which one thing is to be changed.
class Changed {
 public:
  Changed(const Recorded& recorded, std::uint64_t salt)
      : recorded_(recorded), observation_(recorded.observation), random_(salt, recorded.index) {}

  const Recorded& recorded() const { return recorded_; }
  const reference::Program& program() const { return recorded_.value.program; }
  Observation& observation() { return observation_; }
  Random& random() { return random_; }

  // Changes one of the steps that `change` accepts, drawn at random; `change` returns false where
  // there is nothing to change.
  bool a_step(const std::function<bool(At)>& change) {
    std::vector<At> all;
    for (std::size_t r = 0; r < observation_.ranks.size(); ++r)
      for (ObservedStep& step : observation_.ranks[r].steps) {
        const RankObservation& rank = observation_.ranks[r];
        if (rank.exited && &step == &rank.steps.back()) continue;
        if (recorded_.expected(r, step.step).present) all.push_back({r, step});
      }
    const auto start = random_.below(static_cast<std::uint32_t>(all.size()));
    for (std::size_t i = 0; i < all.size(); ++i)
      if (change(all[(start + i) % all.size()])) return true;
    return false;
  }
  bool a_good_step(const std::function<bool(At)>& change) {
    return a_step([&](At at) { return at.step.status.ok() && change(at); });
  }
  bool a_failure(const std::function<bool(At, Failure&)>& change) {
    return a_step([&](At at) {
      const bool is_judged = !at.step.status.ok() && !at.step.is_destroyed;
      return is_judged && change(at, at.step.status.failure());
    });
  }
  bool a_gradient(const std::function<bool(At, std::uint32_t, ObservedGradient&)>& change) {
    return a_good_step([&](At at) {
      for (std::uint32_t p = 0; p < at.step.gradients.size(); ++p)
        if (change(at, p, at.step.gradients[p])) return true;
      return false;
    });
  }
  bool a_collective(const std::function<bool(ObservedCollective&)>& change) {
    return a_good_step([&](At at) {
      return std::any_of(at.step.collectives.begin(), at.step.collectives.end(), change);
    });
  }
  bool a_rank(const std::function<bool(RankObservation&)>& change) {
    auto& ranks = observation_.ranks;
    const auto start = random_.below(static_cast<std::uint32_t>(ranks.size()));
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (change(ranks[(start + i) % ranks.size()])) return true;
    return false;
  }
  bool a_record(const std::function<bool(FlightRecord&)>& change) {
    return a_rank([&](RankObservation& rank) {
      return std::any_of(rank.records.begin(), rank.records.end(),
                         [&](ObservedFlightRecord& each) { return change(each.record); });
    });
  }
  // Returns whether the case breaks a link of this rank.
  bool is_end_of_link(int rank) const {
    const auto& faults = recorded_.value.faults.faults;
    const auto here = static_cast<std::uint32_t>(rank);
    return std::any_of(faults.begin(), faults.end(), [&](const faults::Fault& fault) {
      return fault.kind == faults::Kind::kLinkReset &&
             (fault.rank == here || observation_.fired.link_to == here);
    });
  }
  // A rank of the group other than these two, or kNone.
  int innocent(int one, int other) const {
    const std::uint32_t groups = reference::group_count(program());
    for (int rank = 0; rank < static_cast<int>(program().world / groups); ++rank)
      if (rank != one && rank != other && !is_end_of_link(rank)) return rank;
    return kNone;
  }

 private:
  const Recorded& recorded_;
  Observation observation_;
  Random random_;
};

struct Field {
  const char* name;
  std::function<bool(Changed&)> change;  // returns false if the case has no such field
  std::vector<Unspecified> open;         // reasons that may be counted in place of a failure
};

inline void PrintTo(const Field& field, std::ostream* out) { *out << field.name; }

}  // namespace lockstep::properties
