// Records each bucket that the subject launches, and each hook after the subject's own hook of the
// same gradient has run.
//
// Threads: hooks come from the workers of the engine, launches from any thread of the rank; the
// other functions belong to the thread that trains, while no backward runs. It outlives the hooks
// that it is one of.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <vector>

#include "properties/observe/observation.h"
#include "properties/observe/state_watch.h"
#include "reducer/autograd/parameter.h"
#include "reducer/platform/platform.h"
#include "reference/program.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(platform::now()).count();
}

class PassRecorder final : public GradientHook {
 public:
  PassRecorder(const reference::Program& program, StateWatch& watch)
      : program_(program), watch_(watch) {}

  Status gradient_arriving(Parameter&, std::size_t index, GraphTask&) override {
    if (is_paused_) return {};
    watch_.gradient_arrives();
    if (index < times_.size()) times_[index].begin_ns = now_ns();
    return {};
  }

  Status gradient_ready(Parameter&, std::size_t index, GraphTask&) override {
    if (is_paused_) return {};
    if (index < times_.size()) times_[index].end_ns = now_ns();
    if (!program_.options.rebuild) return note(index);
    // The lock is a scheduling point, so that hooks of several workers are recorded in any order.
    platform::MutexLock lock(mutex_);
    return note(index);
  }
  void begin(bool has_times) {
    hooks_.clear();
    launched_.fill(0);
    has_started_ = false;
    times_.assign(has_times ? program_.parameters.size() : 0, {});
    is_paused_ = false;
  }
  // Hooks of a local backward are not those of the pass. No backward may run.
  void pause(bool paused) { is_paused_ = paused; }
  // Call this just before `bucket` of the reducer is launched.
  void note_launch(std::uint32_t reducer, int bucket) {
    changes_.fetch_add(1);
    std::lock_guard lock(plain_mutex_);
    launched_[reducer] = std::max(launched_[reducer], static_cast<std::uint32_t>(bucket) + 1);
  }
  // Call this when a collective of the pass was started: of a bucket, or of the usage map.
  void note_start() {
    std::lock_guard lock(plain_mutex_);
    has_started_ = true;
  }
  // Returns whether such a collective was started in this step. No backward runs meanwhile.
  bool has_started() const { return has_started_; }
  const std::vector<properties::ObservedHook>& hooks() const { return hooks_; }
  // By parameter: when its last hook began and ended in this step.
  const std::vector<properties::SeenPassTimes::Hook>& times() const { return times_; }
  // Returns the ready order. For a parameter with replicas it lists the first replica, at the
  // position of the last replica's last hook. If a replica had no hook, that position cannot be
  // known here, and the parameter is omitted (P15).
  std::vector<std::uint32_t> order(const reference::Program& program) const {
    const auto had_hook = [this](std::uint32_t part) {
      return std::any_of(
          hooks_.begin(), hooks_.end(),
          [part](const properties::ObservedHook& hook) { return hook.parameter == part; });
    };
    std::vector<bool> is_whole(program.parameters.size(), true);
    for (std::uint32_t i = 0; i < is_whole.size(); ++i) {
      const std::uint32_t original = reference::original_of(program, i);
      const bool is_part = program.parameters[i].shared_with == 0 && !program.parameters[i].frozen;
      if (is_part && !had_hook(i)) is_whole[original] = false;
    }
    std::vector<std::uint32_t> out;
    for (const properties::ObservedHook& hook : hooks_) {
      const std::uint32_t original = reference::original_of(program, hook.parameter);
      std::erase(out, original);
      if (is_whole[original]) out.push_back(original);
    }
    return out;
  }

 private:
  Status note(std::size_t index) {
    changes_.fetch_add(1);
    std::lock_guard lock(plain_mutex_);
    const std::uint32_t reducer = program_.parameters[index].reducer;
    hooks_.push_back({static_cast<std::uint32_t>(index), launched_[reducer]});
    return {};
  }

  const reference::Program& program_;
  StateWatch& watch_;
  platform::Mutex mutex_{"harness.hooks"};
  // This guards hooks_, launched_ and has_started_. It is not the platform's mutex, because a
  // schedule must not depend on it: no thread waits while it holds it.
  std::mutex plain_mutex_;
  // Tells a search over all interleavings that the order of what is recorded matters.
  platform::Atomic<std::uint32_t> changes_{0};
  std::vector<properties::ObservedHook> hooks_;
  std::vector<properties::SeenPassTimes::Hook> times_;  // hooks of one parameter never overlap
  bool is_paused_ = false;
  bool has_started_ = false;
  std::array<std::uint32_t, reference::kMaxReducers> launched_{};  // by reducer, in this step
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
