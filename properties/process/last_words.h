// LastWords: what a process that runs cases says of itself when it crashes, or when it is asked
// because it hangs: the stacks of its threads. They lie in memory that it shares with its parent,
// so that they outlive it, and so that a subject which closes descriptors loses none.
//
// Make it before the fork; the child calls listen(), the parent ask() and text(). Threads: one
// caller in each process. Failure: none; without memory or symbols there is less text. Handlers
// that the process has already, such as those of a sanitizer, stay.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace lockstep::properties {

class LastWords {
 public:
  LastWords();
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

  // From now on the calling process writes its stack before a signal such as SIGSEGV ends it.
  void listen();

  // Lets all threads of the process, which calls listen(), write their stacks.
  void ask(pid_t process, std::chrono::milliseconds patience) const;

  // Returns what was written so far, a line a frame, or nothing; and forgets it.
  std::string take();

 private:
  struct Shared;
  Shared* shared_ = nullptr;
};

// Gives crashes back to the system, and so to LastWords, where UCX has taken them while it was
// loaded: Debian 13's Gloo brings it, through MPI. It would print a stack over 30 lines.
void drop_handlers_of_ucx();

}  // namespace lockstep::properties
