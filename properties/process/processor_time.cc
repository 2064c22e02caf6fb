#include "properties/process/processor_time.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

constexpr double kLeastWait_s = 5;
constexpr double kLeastShare = 0.05;
constexpr double kNanoseconds = 1e-9;

}  // namespace

std::optional<ProcessorTime> time_of_thread(const std::string& folder) {
  std::ifstream file(folder + "/schedstat");
  double ran_ns = 0;
  double waited_ns = 0;
  if (!(file >> ran_ns >> waited_ns)) return std::nullopt;
  return ProcessorTime{ran_ns * kNanoseconds, waited_ns * kNanoseconds};
}

bool is_starved(const ProcessorTime& time) {
  return time.waited_s >= kLeastWait_s && time.ran_s < kLeastShare * (time.ran_s + time.waited_s);
}

ProcessorClock::ProcessorClock(std::string folder) : folder_(std::move(folder)) { read(true); }

void ProcessorClock::sample() { read(false); }

void ProcessorClock::sample_this_thread() {
  const std::scoped_lock lock(mutex_);
  read_thread(std::to_string(::gettid()), "/proc/thread-self", false);
}

void ProcessorClock::read(bool is_first) {
  const std::scoped_lock lock(mutex_);
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored))
    read_thread(entry.path().filename().string(), entry.path().string(), is_first);
}

void ProcessorClock::read_thread(const std::string& name, const std::string& folder,
                                 bool is_first) {
  const std::optional<ProcessorTime> time = time_of_thread(folder);
  if (!time) return;
  Thread& thread = threads_[name];
  thread.last = *time;
  if (is_first) thread.first = thread.last;
}

double ProcessorClock::longest_wait_s() const {
  const std::scoped_lock lock(mutex_);
  double longest = 0;
  for (const auto& [name, thread] : threads_)
    longest = std::max(longest, thread.last.waited_s - thread.first.waited_s);
  return longest;
}

ProcessorTime ProcessorClock::time() const {
  const std::scoped_lock lock(mutex_);
  ProcessorTime sum;
  for (const auto& [name, thread] : threads_) {
    sum.ran_s += thread.last.ran_s - thread.first.ran_s;
    sum.waited_s += thread.last.waited_s - thread.first.waited_s;
  }
  return sum;
}

}  // namespace lockstep::properties
