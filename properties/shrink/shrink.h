// shrink: makes a failing case smaller while it goes on failing in the same way. Structural: it
// deletes steps, ranks, parameters, forwards, nodes and faults, and moves every option towards its
// default, as all of these are legal cases.
//
// Candidates lists the smaller neighbours of a case, one after the other, the most drastic first.
// shrink() takes the first that still fails and goes on from there, until no neighbour fails or the
// budget is spent. A candidate that is taken is strictly smaller (size.h), so it ends.
//
// Threads: objects are not shared; `test` runs on the caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "properties/case/case.h"
#include "properties/shrink/size.h"

namespace lockstep::properties {

struct Edit;

// The smaller neighbours of a case, made when asked for. Copies share the list and go on by
// themselves.
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
  std::function<bool()> stop;  // asked before each execution: whether time is up; empty: never
  // Under a random policy a smaller program meets another schedule. Each candidate that passes the
  // test is tried with so many further seeds before it is given up.
  std::uint32_t extra_seeds = 0;
  // The deviations from the default policy that a run of the case made. Where given, a case that
  // cannot be made any smaller gets them in place of its random policy, and then they are dropped
  // one by one.
  std::function<std::optional<std::vector<Schedule::Deviation>>(const Case&)> record;
};

struct ShrinkResult {
  Case value;
  std::uint64_t executions = 0;
  std::uint64_t accepted = 0;
  bool finished = false;  // no neighbour fails; false: the budget was spent before
};

// `test` says whether a case still fails in the same way. The case given is taken to fail.
ShrinkResult shrink(const Case& value, const std::function<bool(const Case&)>& test,
                    const ShrinkOptions& options = {});

}  // namespace lockstep::properties
