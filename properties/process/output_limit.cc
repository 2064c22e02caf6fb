#include "properties/process/output_limit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "properties/process/process_end.h"
#include "properties/process/system_error.h"
#include "reducer/base/check.h"

namespace lockstep::properties {
namespace {

constexpr auto kPatience = std::chrono::seconds(1);
constexpr std::array<int, 2> kStandard{STDOUT_FILENO, STDERR_FILENO};
constexpr int kFirst = 3;  // the descriptor behind those

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// What is known of one stream.
class Stream {
 public:
  explicit Stream(int to) : to_(to) {}

  void take(std::string_view text) {
    const std::string_view now = text.substr(0, room_);
    write_all(to_, now);
    room_ -= now.size();
    if (text.size() == now.size()) return;
    if (last_.empty())
      write_all(to_, "\n(this process prints much: the last part of it comes when it ends)\n");
    last_ += text.substr(now.size());
    if (last_.size() > 2 * kLastOutput) cut();
  }

  void end() {
    cut();
    if (left_out_ > 0) write_all(to_, fmt::format("({} bytes are left out)\n", left_out_));
    write_all(to_, last_);
  }

 private:
  void cut() {
    if (last_.size() <= kLastOutput) return;
    left_out_ += last_.size() - kLastOutput;
    last_.erase(0, last_.size() - kLastOutput);
  }

  const int to_;
  std::uint64_t room_ = kFirstOutput;
  std::uint64_t left_out_ = 0;
  std::string last_;
};

[[noreturn]] void carry(const std::array<int, 2>& from) {
  ::setpgid(0, 0);  // Ctrl-C is for others
  ::signal(SIGPIPE, [](int) {});  // what nobody reads is dropped
  // It holds no other descriptor open.
  const auto [low, high] = std::minmax(from[0], from[1]);
  for (const auto& [first, last] :
       {std::pair(kFirst, low - 1), {low + 1, high - 1}, {high + 1, INT_MAX}})
    if (first <= last) ::close_range(static_cast<unsigned>(first), static_cast<unsigned>(last), 0);
  std::array<pollfd, 2> pipes{pollfd{from[0], POLLIN, 0}, pollfd{from[1], POLLIN, 0}};
  std::array<Stream, 2> streams{Stream(kStandard[0]), Stream(kStandard[1])};
  std::string buffer(1 << 16, '\0');
  while (pipes[0].fd >= 0 || pipes[1].fd >= 0) {
    if (::poll(pipes.data(), pipes.size(), -1) < 0) continue;  // a signal came
    for (int i = 0; i < 2; ++i) {
      if (pipes[i].fd < 0 || pipes[i].revents == 0) continue;
      const ssize_t got = ::read(pipes[i].fd, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got > 0) {
        streams[i].take({buffer.data(), static_cast<std::size_t>(got)});
      } else {
        streams[i].end();
        pipes[i].fd = -1;  // poll() skips it
      }
    }
  }
  ::_exit(0);
}

}  // namespace

Status OutputLimit::start() {
  finish();
  std::array<std::array<int, 2>, 2> pipes{};  // each has an end to read from, and one to write to
  const auto close_ends = [&](int end, int count) {
    for (int i = 0; i < count; ++i) ::close(pipes[i][end]);
  };
  for (int i = 0; i < 2; ++i) {
    if (::pipe2(pipes[i].data(), O_CLOEXEC) == 0) continue;
    const int error = errno;
    close_ends(0, i);
    close_ends(1, i);
    return refused_by_system("no pipe for the output of a process can be made", error);
  }
  std::fflush(nullptr);
  pid_ = ::fork();
  const int error = errno;
  if (pid_ == 0) carry({pipes[0][0], pipes[1][0]});
  close_ends(0, 2);
  if (pid_ < 0) {
    close_ends(1, 2);
    return refused_by_system("no process for the output of another one can be started", error);
  }
  to_reader_ = {pipes[0][1], pipes[1][1]};
  return {};
}

void OutputLimit::take_over() {
  // A pipe would be buffered as a whole, where lines of a terminal are not.
  if (::isatty(STDOUT_FILENO) == 1) std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  for (int i = 0; i < 2; ++i) ::dup2(to_reader_[i], kStandard[i]);
  let_go();
}

void OutputLimit::let_go() {
  for (int& fd : to_reader_)
    if (fd >= 0) ::close(std::exchange(fd, -1));
}

void OutputLimit::finish() {
  let_go();
  if (pid_ >= 0) (void)end_within(std::exchange(pid_, -1), kPatience);
}

}  // namespace lockstep::properties
