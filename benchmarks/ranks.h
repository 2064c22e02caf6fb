// Runs ranks as real processes, which meet at a barrier before and after what is timed.
//
// The parent forks the ranks before it has a thread of its own, waits for them, and forwards
// signals: SIGINT and SIGTERM end every rank before run_ranks() returns. A rank whose parent is
// killed is killed, too. A rank that fails ends the other ranks, because they might wait for it for
// ever.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace lockstep::benchmarks {

// Memory that the parent and all ranks share. It is zero at first.
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

// A barrier for the ranks. The ranks leave it within about a microsecond of each other if each has
// a processor.
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

// From this call on, SIGINT and SIGTERM end run_ranks(), and later calls of it, too.
void catch_signals();

// Runs body(rank) in one process per rank. Returns 0 if every body returned 0, 128 plus the
// signal's number after a signal to the parent, and 1 otherwise.
int run_ranks(int ranks, const std::function<int(int rank)>& body);

}  // namespace lockstep::benchmarks
