// StatusLine: what `fuzz` shows on standard error while it runs. On a terminal it is one line that
// is written again and again, as wide as the terminal at most; elsewhere it is a plain line
// whenever the number of cases has doubled. If the environment has NO_COLOR
// (https://no-color.org), the line has no colors.
//
// Threads: one caller. Errors of standard error are ignored.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::properties {

// What the line shows.
struct RunStatus {
  std::string lane;
  std::string subject;
  std::uint64_t seed = 0;
  double seconds = 0;                // since the run began
  std::uint64_t cases = 0;           // cases that have run
  std::uint64_t ok = 0;              // cases that passed without a fault that fired
  std::uint64_t faulted_ok = 0;      // cases that passed with one
  std::size_t features = 0;          // different features that the cases had so far
  double seconds_since_feature = 0;  // since the last new feature was seen
  std::size_t failures = 0;
  std::string last_failure;                 // such as "wrong bits"
  std::optional<double> seconds_left;       // if the run ends after a time
  std::optional<std::uint64_t> cases_left;  // if the run ends after a number of cases
};

double seconds_since(std::chrono::steady_clock::time_point start);

// Returns the line for a terminal of `width` columns. It is narrower than that, not counting the
// escape sequences of colors.
std::string live_line(const RunStatus& status, std::size_t width, bool has_colors);
// Returns the line for a file or a pipe.
std::string plain_line(const RunStatus& status);

class StatusLine {
 public:
  StatusLine();

  // Whether it is time to show the line again: on a terminal after a quarter of a second, elsewhere
  // when the number of cases has doubled.
  bool is_due(double seconds, std::uint64_t cases) const;
  void show(const RunStatus& status);
  // Shows another text: every quarter of a second on a terminal, every ten seconds elsewhere.
  void show_waiting(const std::string& text);
  // Removes the line, before something else is printed.
  void clear() const;

 private:
  void write(const std::string& text) const;

  const bool is_terminal_;
  const bool has_colors_;
  double shown_at_ = -1;
  std::uint64_t shown_cases_ = 0;
  std::chrono::steady_clock::time_point waiting_shown_;
};

}  // namespace lockstep::properties
