// Ranks as real processes, which meet before and after what is timed.
//
// The parent forks them before it has a thread of its own, waits for them, and passes a signal on:
// SIGINT and SIGTERM end every rank before run_ranks() returns, and a rank whose parent is killed
// is killed, too. A rank that fails ends the others, who might wait for it for ever.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace lockstep::benchmarks {

// Memory that the parent and all ranks see, zeros at first.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  const std::size_t bytes_;
  std::byte* data_ = nullptr;
};

// Where ranks wait for each other. They leave within a microsecond or so of each other, if there is
// a processor for each.
class MeetingPoint {
 public:
  explicit MeetingPoint(int ranks);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;
  void meet();

 private:
  struct State;
  SharedMemory memory_;
  State* state_ = nullptr;
};

// From here on SIGINT and SIGTERM end run_ranks(), also the next one.
void catch_signals();

// Runs body(rank) in a process each. 0 if every one of them returned 0; 128 and the signal's number
// after a signal to the parent; else 1.
int run_ranks(int ranks, const std::function<int(int rank)>& body);

}  // namespace lockstep::benchmarks
