#include "properties/cli/output.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "properties/process/terminal.h"

namespace lockstep::properties {
namespace {

bool g_is_broken = false;
bool g_has_reader = true;  // false: standard output is a pipe whose reader has gone

extern "C" void on_refused_write(int) {}

bool write_whole(std::string_view text) {
  const std::string shown = printable(text);
  return std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size() &&
         std::fflush(stdout) == 0;
}

}  // namespace

void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      // Standard output is opened read-only, so that a write to it is an error that tell() sees.
      (void)::open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  for (const int signal : {SIGPIPE, SIGXFSZ}) {
    struct sigaction current {};
    if (::sigaction(signal, nullptr, &current) != 0 || current.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    // This is not SIG_IGN, because the programs that we start would inherit that.
    action.sa_handler = on_refused_write;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

void tell(std::string_view text) {
  if (!g_is_broken) {
    if (write_whole(text)) return;
    g_is_broken = true;
    g_has_reader = errno != EPIPE;
    if (!g_has_reader) return;
    remark(std::string("cannot write to standard output: ") + std::strerror(errno) +
           "; what should stand there follows here");
  }
  if (g_has_reader) write_aside(text);
}

void tell_reference(std::string_view text) {
  if (g_is_broken || write_whole(text)) return;
  g_is_broken = true;
  if (errno == EPIPE) return;
  remark(std::string("cannot write to standard output: ") + std::strerror(errno));
}

int complain(std::string_view text, int code) {
  remark(text);
  return code;
}

int complain(const Status& status, int code) { return complain(status.failure().detail, code); }

int after_telling(int code) { return g_is_broken && code == 0 ? kUsage : code; }

}  // namespace lockstep::properties
