#include "properties/run/rerun.h"

#include <fmt/format.h>

namespace lockstep::properties {
namespace {

constexpr int kStarvedRuns = 2;
constexpr int kLateRuns = 3;
constexpr int kWaitsInTimeout = 4;

bool depends_on_time(Failing failing) {
  return failing == Failing::kDeadlock || failing == Failing::kLeak ||
         failing == Failing::kWrongError;
}

double seconds_of(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

bool was_late(const RunOfCase& run) {
  return run.waited_s * kWaitsInTimeout >= seconds_of(run.timeout);
}

}  // namespace

Next next_after(const RunOfCase& run) {
  if (!depends_on_time(run.failing)) return Next::kAccept;
  if (run.was_starved) return run.runs < kStarvedRuns ? Next::kRunAgain : Next::kInconclusive;
  if (!was_late(run)) return Next::kAccept;
  if (run.runs < kLateRuns) return Next::kRunAgain;
  return run.least_wait_s >= seconds_of(run.timeout) ? Next::kInconclusive : Next::kAccept;
}

std::string note_of_wait(const RunOfCase& run) {
  if (!depends_on_time(run.failing) || !was_late(run)) return {};
  return fmt::format(
      "\n(a rank waited {:.1f} s for a processor, with a timeout of {:.1f} s; the case ran {}, and "
      "failed each time)",
      run.waited_s, seconds_of(run.timeout),
      run.runs == 1 ? "once" : fmt::format("{} times", run.runs));
}

}  // namespace lockstep::properties
