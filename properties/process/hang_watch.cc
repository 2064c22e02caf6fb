#include "properties/process/hang_watch.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "properties/process/processor_time.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLimits = 4;

// The process group that /proc/PID/stat names, or -1. The name of the program, in brackets, may
// contain anything.
pid_t group_of(const fs::path& process) {
  std::ifstream file(process / "stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return -1;
  std::istringstream fields(line.substr(name_end + 1));
  std::string state;
  pid_t parent = -1;
  pid_t group = -1;
  return fields >> state >> parent >> group ? group : -1;
}

}  // namespace

HangWatch::Times HangWatch::times_of(pid_t group) const {
  Times times;
  std::error_code ignored;
  for (const fs::directory_entry& process : fs::directory_iterator(processes_, ignored)) {
    const std::string name = process.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (group_of(process.path()) != group) continue;
    for (const fs::directory_entry& thread :
         fs::directory_iterator(process.path() / "task", ignored))
      if (const auto time = time_of_thread(thread.path().string()))
        times[thread.path().filename().string()] = *time;
  }
  return times;
}

// Looks once a second. A twentieth of the time is no idleness.
bool HangWatch::is_idle(pid_t group, CaseTimer::Milliseconds taken, CaseTimer::Milliseconds limit) {
  constexpr CaseTimer::Milliseconds kOften(1000);
  constexpr double kShare = 0.05;
  if (work_ && taken < work_->taken) work_.reset();  // another case
  if (taken < kOften || (work_ && taken - work_->taken < kOften)) return false;
  const Times times = times_of(group);
  if (times.empty()) return false;  // the system does not count
  double seconds = 0;
  for (const auto& [thread, time] : times) seconds += time.ran_s + time.waited_s;
  const auto since = taken - (work_ ? work_->taken : taken);
  const bool has_worked = !work_ || std::abs(seconds - work_->seconds) >
                                        kShare * std::chrono::duration<double>(since).count();
  if (has_worked) work_ = {taken, seconds};
  return !has_worked && since >= limit;
}

HangWatch::Found HangWatch::look(pid_t group, CaseTimer::Running running,
                                 CaseTimer::Milliseconds idle_limit) {
  if (running.limit.count() != 0 && idle_limit.count() != 0 &&
      is_idle(group, running.taken, idle_limit))
    return Found::kIdle;
  if (2 * running.taken < running.limit || running.limit.count() == 0) {
    half_way_.reset();
    return Found::kNothing;
  }
  if (!half_way_ || running.taken < half_way_->taken) half_way_ = {running.taken, times_of(group)};
  if (!running.is_over_limit()) return Found::kNothing;
  double longest_s = 0;
  for (const auto& [thread, time] : times_of(group)) {
    const auto before = half_way_->times.find(thread);
    const double waited_s = before == half_way_->times.end() ? 0 : before->second.waited_s;
    longest_s = std::max(longest_s, time.waited_s - waited_s);
  }
  const auto waited =
      std::chrono::duration_cast<CaseTimer::Milliseconds>(std::chrono::duration<double>(longest_s));
  if (running.taken - waited >= running.limit) return Found::kHung;
  return running.taken >= kMostLimits * running.limit ? Found::kStarved : Found::kNothing;
}

}  // namespace lockstep::properties
