#include "properties/cli/status_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>

#include "properties/process/terminal.h"

namespace lockstep::properties {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kUsualWidth = 80;

std::size_t width_of_terminal() {
  winsize size{};
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : kUsualWidth;
}

// Returns the count in few letters: 12345678 becomes "12.3M".
std::string short_count(std::uint64_t count) {
  if (count < 10'000) return fmt::format("{}", count);
  if (count < 999'950) return fmt::format("{:.1f}k", static_cast<double>(count) / 1e3);
  return fmt::format("{:.1f}M", static_cast<double>(count) / 1e6);
}

std::string short_time(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::max(seconds, 0.0));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

double rate(const RunStatus& status) {
  return static_cast<double>(status.cases) / std::max(status.seconds, 0.001);
}

std::string time_left(const RunStatus& status) {
  if (status.seconds_left) return short_time(*status.seconds_left) + " left";
  if (!status.cases_left || status.cases == 0) return {};
  return short_time(static_cast<double>(*status.cases_left) / rate(status)) + " left";
}

}  // namespace

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What matters most comes first, because a narrow terminal has no room for the parts at the end.
std::string live_line(const RunStatus& status, std::size_t width, bool has_colors) {
  // The last column stays empty: a terminal whose last column is written begins a new line.
  const std::size_t room = std::max<std::size_t>(width, 1) - 1;
  const std::string head = fmt::format("{} {}  ", status.lane, printable_line(status.subject));
  const std::string failures =
      status.failures == 0
          ? std::string("no failure")
          : fmt::format("{} FAILED, last: {}", status.failures, status.last_failure);
  const std::string left = time_left(status);
  const std::string parts[] = {
      fmt::format("  {} cases, {:.0f}/s", short_count(status.cases), rate(status)),
      left.empty() ? left : "  " + left,
      fmt::format("  {} features", status.features),
      fmt::format(", the last new one {} ago", short_time(status.seconds_since_feature)),
  };
  std::string text = (head + failures).substr(0, room);
  for (const std::string& part : parts) {
    if (text.size() + part.size() > room) break;
    text += part;
  }
  if (!has_colors || status.failures == 0 || text.size() <= head.size()) return text;
  const std::size_t end = std::min(text.size(), head.size() + failures.size());
  return text.substr(0, head.size()) + "\033[1;31m" + text.substr(head.size(), end - head.size()) +
         "\033[0m" + text.substr(end);
}

std::string plain_line(const RunStatus& status) {
  return fmt::format(
      "{} {}  {} cases  {:.0f}/s  ok {}  with faults {}  FAIL {}  features {}  seed {}",
      status.lane, printable_line(status.subject), status.cases, rate(status), status.ok,
      status.faulted_ok, status.failures, status.features, status.seed);
}

StatusLine::StatusLine()
    : is_terminal_(::isatty(STDERR_FILENO) == 1), has_colors_([] {
        const char* const none = std::getenv("NO_COLOR");
        return none == nullptr || *none == '\0';
      }()) {}

bool StatusLine::is_due(double seconds, std::uint64_t cases) const {
  if (is_terminal_) return seconds - shown_at_ >= 0.25;
  return cases > 0 && std::bit_floor(cases) > shown_cases_;
}

void StatusLine::show(const RunStatus& status) {
  shown_at_ = status.seconds;
  shown_cases_ = std::max<std::uint64_t>(std::bit_floor(status.cases), 1);
  write(is_terminal_ ? live_line(status, width_of_terminal(), has_colors_) : plain_line(status));
}

void StatusLine::show_waiting(const std::string& text) {
  const std::chrono::duration<double> since = Clock::now() - waiting_shown_;
  if (since.count() < (is_terminal_ ? 0.25 : 10)) return;
  waiting_shown_ = Clock::now();
  const std::string line = printable_line(text);
  write(is_terminal_ ? line.substr(0, width_of_terminal() - 1) : line);
}

void StatusLine::clear() const {
  if (is_terminal_) clear_aside();
}

void StatusLine::write(const std::string& text) const {
  std::fprintf(stderr, is_terminal_ ? "\r\033[K%s" : "%s\n", text.c_str());
  std::fflush(stderr);
}

}  // namespace lockstep::properties
