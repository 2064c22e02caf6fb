// shrink: makes a failing case smaller while it still fails in the same way. The shrinker is
// structural: it deletes steps, ranks, parameters, forwards, nodes and faults, and moves every
// option towards its default; all results are legal cases.
//
// Candidates lists the smaller neighbours of a case, the most drastic first. shrink() takes the
// first one that still fails and continues from there, until no neighbour fails or the budget is
// spent. An accepted candidate is strictly smaller (size.h), so the search ends.
//
// Threads: objects are not shared; `test` runs on the caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "properties/case/capabilities.h"
#include "properties/case/case.h"
#include "properties/shrink/size.h"

namespace lockstep::properties {

struct Edit;

// The smaller neighbours of a case, created on demand. Copies share the list, and each has its own
// position.
class Candidates {
 public:
  explicit Candidates(const Case& value);
  std::optional<Case> next();

 private:
  std::shared_ptr<const Case> case_;
  std::shared_ptr<const std::vector<Edit>> edits_;
  Size size_;
  std::size_t position_ = 0;
};

struct ShrinkOptions {
  std::uint64_t max_executions = 2'000;
  std::function<bool()> stop;  // called before each execution: whether time is up; empty: never
  // Under a random policy a smaller program has another schedule. Each candidate that no longer
  // fails is tried with this many further seeds before it is rejected.
  std::uint32_t extra_seeds = 0;
  // What candidates may need (capabilities.h); one that needs more is left out, and costs no
  // execution.
  Capabilities within = Capabilities::all();
  // Returns the deviations from the default policy that a run of the case made. If set, a case that
  // cannot become smaller gets them in place of its random policy, and then they are dropped one by
  // one.
  std::function<std::optional<std::vector<Schedule::Deviation>>(const Case&)> record;
};

struct ShrinkResult {
  Case value;
  std::uint64_t executions = 0;
  std::uint64_t accepted = 0;
  bool finished = false;  // no neighbour fails; false: the budget was spent first
};

// `test` returns whether a case still fails in the same way. `value` itself must fail.
ShrinkResult shrink(const Case& value, const std::function<bool(const Case&)>& test,
                    const ShrinkOptions& options = {});

}  // namespace lockstep::properties
