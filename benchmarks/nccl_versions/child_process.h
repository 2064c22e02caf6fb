// Runs something in a child process, so that it may crash, end the process, or hang.
//
// Threads: one caller, in a process without other threads (it forks).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::benchmarks {

struct ChildResult {
  enum class End : std::uint8_t { kReturned, kExited, kSignal, kTimeout };
  End end = End::kReturned;
  int code = 0;  // of the exit, or the signal
  double milliseconds = 0;
  double limit_seconds = 0;
  std::string output;

  bool is_fine() const { return end == End::kReturned; }
  // Such as "ended by signal 11 (Segmentation fault)".
  std::string describe() const;
};

// Calls body() in a child. What it returns is the output. It has ended well only if it returned: a
// body that calls exit(0) has not.
ChildResult run_in_child(double limit_seconds, const std::function<std::string()>& body);

// Runs a program; its output is what it writes to standard output and standard error. It has ended
// well if its exit code is 0.
ChildResult run_program(const std::vector<std::string>& words, double limit_seconds);

// The first line that has this word, or the first line of all.
std::string first_line_with(const std::string& text, const std::string& word);

}  // namespace lockstep::benchmarks
