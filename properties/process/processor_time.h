// ProcessorTime: for how long the threads of a process ran, and for how long they could have run
// but waited for a processor. A process that mostly waits misses every deadline, and seems to hang;
// one that waits for a while may miss a short one.
//
// Threads: any, also at once. Failure: none; where the system does not count (no
// /proc/PID/task/*/schedstat), all times are zero.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace lockstep::properties {

struct ProcessorTime {
  double ran_s = 0;
  double waited_s = 0;
};

// The times of a thread since it began; `folder` is /proc/PID/task/TID. Nothing where the system
// does not count.
std::optional<ProcessorTime> time_of_thread(const std::string& folder);

// The machine gave the process less than a twentieth of what it could have used.
bool is_starved(const ProcessorTime& time);

// Measures what the threads of a process did since the clock was made. Of a thread that has ended
// it keeps what the last sample has seen.
class ProcessorClock {
 public:
  // The folder of the threads: /proc/PID/task.
  explicit ProcessorClock(std::string folder);

  void sample();
  // Reads the times of the calling thread alone, which does not need a folder.
  void sample_this_thread();
  ProcessorTime time() const;     // of all threads together
  double longest_wait_s() const;  // of the one thread that waited longest

 private:
  struct Thread {
    ProcessorTime first;
    ProcessorTime last;
  };
  void read(bool is_first);
  // `mutex_` must be locked.
  void read_thread(const std::string& name, const std::string& folder, bool is_first);

  const std::string folder_;
  mutable std::mutex mutex_;
  std::map<std::string, Thread> threads_;  // guarded by mutex_
};

}  // namespace lockstep::properties
