// ProcessorTime: for how long the threads of a process ran, and for how long they could have run
// but waited for a processor. A process that mostly waits misses every deadline, and seems to hang.
//
// Threads: one caller. Failure: none; where the system does not count (no
// /proc/PID/task/*/schedstat), both times are zero.
#pragma once

#include <map>
#include <string>

namespace lockstep::properties {

struct ProcessorTime {
  double ran_s = 0;
  double waited_s = 0;
};

// The machine gave the process less than a twentieth of what it could have used.
bool is_starved(const ProcessorTime& time);

// Adds up what the threads of a process did since it was made. Threads that end between two samples
// keep what the sample before has seen of them.
class ProcessorClock {
 public:
  // The folder of the threads: /proc/PID/task.
  explicit ProcessorClock(std::string folder);

  void sample();
  ProcessorTime time() const;

 private:
  struct Thread {
    ProcessorTime first;
    ProcessorTime last;
  };
  void read(bool is_first);

  std::string folder_;
  std::map<std::string, Thread> threads_;
};

}  // namespace lockstep::properties
