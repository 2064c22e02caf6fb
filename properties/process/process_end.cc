#include "properties/process/process_end.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

namespace lockstep::properties {

std::string describe_end(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return fmt::format("was killed by signal {} ({})", signal, ::strsignal(signal));
  }
  if (WIFEXITED(wait_status)) return fmt::format("exited with status {}", WEXITSTATUS(wait_status));
  return "ended in an unknown way";
}

namespace {

// How many processes this system has killed because memory ran out. 0 if it does not say.
std::uint64_t memory_kills() {
  std::ifstream counters("/proc/vmstat");
  std::string name;
  for (std::uint64_t count = 0; counters >> name >> count;)
    if (name == "oom_kill") return count;
  return 0;
}

std::uint64_t g_memory_kills_seen = memory_kills();

bool has_system_killed_since() {
  const std::uint64_t seen = std::exchange(g_memory_kills_seen, memory_kills());
  return g_memory_kills_seen > seen;
}

bool has_time_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_CPU, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

std::string cause_outside(int wait_status, bool may_signal_itself) {
  if (!WIFSIGNALED(wait_status)) return {};
  const int signal = WTERMSIG(wait_status);
  if (signal == SIGXCPU || (signal == SIGKILL && has_time_limit()))
    return "the limit on its processor time (ulimit -t) was reached: raise it";
  if (signal == SIGKILL && has_system_killed_since())
    return "the system killed it because memory ran out: run fewer jobs (--jobs), or less beside "
           "it";
  const bool is_sent = signal == SIGKILL || signal == SIGTERM || signal == SIGHUP ||
                       signal == SIGINT || signal == SIGQUIT;
  return is_sent && !may_signal_itself ? "nothing in it sends that signal: somebody else did" : "";
}

bool has_ended(pid_t child) {
  siginfo_t info{};
  const int result = ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT);
  return result != 0 || info.si_pid == child;  // ECHILD: another caller has waited for it
}

std::optional<int> end_within(pid_t child, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!has_ended(child)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
      return std::nullopt;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  int status = 0;
  pid_t ended = -1;
  do ended = ::waitpid(child, &status, 0);
  while (ended < 0 && errno == EINTR);
  if (ended != child) return std::nullopt;
  return status;
}

}  // namespace lockstep::properties
