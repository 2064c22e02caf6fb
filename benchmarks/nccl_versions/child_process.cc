#include "benchmarks/nccl_versions/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <sstream>

namespace lockstep::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kReturned[] = "the body has returned\n";
constexpr int kNotStarted = 127;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void write_all(int file, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(file, text.data() + done, text.size() - done);
    if (count <= 0) return;
    done += static_cast<std::size_t>(count);
  }
}

// Reads until the other end is closed by all. Returns false if the time is over before.
bool read_until_closed(int file, Clock::time_point start, double limit, std::string& out) {
  std::array<char, 65536> buffer{};
  while (true) {
    const double left = limit - seconds_since(start);
    if (left <= 0) return false;
    pollfd one{file, POLLIN, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(left * 1000) + 1);
    if (ready <= 0) continue;
    const ssize_t count = ::read(file, buffer.data(), buffer.size());
    if (count <= 0) return true;
    out.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

// Returns the status of a process that ends in time.
std::optional<int> wait_for(pid_t process, Clock::time_point start, double limit) {
  int status = 0;
  while (::waitpid(process, &status, WNOHANG) != process) {
    if (seconds_since(start) > limit) return std::nullopt;
    ::usleep(500);
  }
  return status;
}

template <class Child>
ChildResult in_child(double limit, Child&& child) {
  ChildResult result;
  result.limit_seconds = limit;
  const Clock::time_point start = Clock::now();
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    result.end = ChildResult::End::kExited;
    return result;
  }
  const pid_t process = ::fork();
  if (process == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setpgid(0, 0);  // so that what the child starts ends with it
    ::close(pipe[0]);
    child(pipe[1]);
    ::_exit(kNotStarted);
  }
  ::setpgid(process, process);
  ::close(pipe[1]);
  const bool is_closed = process > 0 && read_until_closed(pipe[0], start, limit, result.output);
  ::close(pipe[0]);
  if (process < 0) {
    result.end = ChildResult::End::kExited;
    return result;
  }
  const std::optional<int> ended = is_closed ? wait_for(process, start, limit) : std::nullopt;
  ::kill(-process, SIGKILL);
  if (!ended) static_cast<void>(::waitpid(process, nullptr, 0));
  const int status = ended.value_or(0);
  result.milliseconds = seconds_since(start) * 1000;
  if (!ended) {
    result.end = ChildResult::End::kTimeout;
  } else if (WIFSIGNALED(status)) {
    result.end = ChildResult::End::kSignal;
    result.code = WTERMSIG(status);
  } else {
    result.end = ChildResult::End::kExited;
    result.code = WEXITSTATUS(status);
  }
  return result;
}

}  // namespace

std::string ChildResult::describe() const {
  switch (end) {
    case End::kReturned:
      return "returned";
    case End::kExited:
      return fmt::format("ended the process with code {}", code);
    case End::kSignal:
      return fmt::format("ended the process by signal {} ({})", code, ::strsignal(code));
    case End::kTimeout:
      return fmt::format("did not return within {} s", limit_seconds);
  }
  return "";
}

ChildResult run_in_child(double limit_seconds, const std::function<std::string()>& body) {
  ChildResult result = in_child(limit_seconds, [&](int file) {
    const Clock::time_point start = Clock::now();
    const std::string text = body();
    const double milliseconds = seconds_since(start) * 1000;
    write_all(file, fmt::format("{}{}\n{}", kReturned, milliseconds, text));
    ::_exit(0);  // without handlers of the library
  });
  const std::size_t mark = sizeof kReturned - 1;
  if (result.output.compare(0, mark, kReturned) != 0) {
    result.output.clear();
    return result;
  }
  const std::size_t line = result.output.find('\n', mark);
  result.milliseconds = std::stod(result.output.substr(mark, line - mark));
  result.output.erase(0, line + 1);
  result.end = ChildResult::End::kReturned;
  result.code = 0;
  return result;
}

ChildResult run_program(const std::vector<std::string>& words, double limit_seconds) {
  ChildResult result = in_child(limit_seconds, [&](int file) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
    ::execvp(arguments[0], arguments.data());
  });
  if (result.end == ChildResult::End::kExited && result.code == 0)
    result.end = ChildResult::End::kReturned;
  return result;
}

std::string first_line_with(const std::string& text, const std::string& word) {
  std::istringstream lines(text);
  std::string first;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(word) != std::string::npos) return line;
    if (first.empty()) first = line;
  }
  return first;
}

}  // namespace lockstep::benchmarks
