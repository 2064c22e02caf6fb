#include "properties/cli/output.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace lockstep::properties {
namespace {

bool g_is_broken = false;
bool g_has_reader = true;  // false: standard output is a pipe whose reader has gone

extern "C" void on_closed_pipe(int) {}

bool write_whole(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

}  // namespace

void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      // Standard output is opened read-only, so that a write to it is an error that tell() sees.
      (void)::open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  struct sigaction current {};
  if (::sigaction(SIGPIPE, nullptr, &current) != 0 || current.sa_handler != SIG_DFL) return;
  struct sigaction action {};
  // This is not SIG_IGN, because the programs that we start would inherit that.
  action.sa_handler = on_closed_pipe;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGPIPE, &action, nullptr);
}

void tell(std::string_view text) {
  if (!g_is_broken) {
    if (write_whole(text)) return;
    g_is_broken = true;
    g_has_reader = errno != EPIPE;
    if (!g_has_reader) return;
    std::fprintf(stderr,
                 "lockstep: cannot write to standard output: %s; what should stand there "
                 "follows here\n",
                 std::strerror(errno));
  }
  if (g_has_reader) std::fwrite(text.data(), 1, text.size(), stderr);
}

void tell_reference(std::string_view text) {
  if (g_is_broken || write_whole(text)) return;
  g_is_broken = true;
  if (errno == EPIPE) return;
  std::fprintf(stderr, "lockstep: cannot write to standard output: %s\n", std::strerror(errno));
}

int complain(std::string_view text, int code) {
  std::fprintf(stderr, "lockstep: %.*s\n", static_cast<int>(text.size()), text.data());
  return code;
}

int complain(const Status& status, int code) { return complain(status.failure().detail, code); }

int after_telling(int code) { return g_is_broken && code == 0 ? kUsage : code; }

}  // namespace lockstep::properties
