#include "properties/lane/rank_fork_server.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "properties/process/message.h"
#include "properties/process/system_error.h"
#include "reducer/base/check.h"
#include "reference/program.h"

extern char** environ;

namespace lockstep::properties {
namespace {

constexpr int kServerFd = 3;                             // of the socket, in the other process
constexpr auto kStartLimit = std::chrono::seconds(120);  // for a busy machine that loads torch

constexpr std::size_t kMaxDescriptors = reference::kMaxWorld;

// The control data of a message of one byte that carries descriptors.
union Carrier {
  cmsghdr header;
  char bytes[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
};

bool send_descriptors(int fd, const std::vector<int>& sent) {
  LOCKSTEP_CHECK_LE(sent.size(), kMaxDescriptors);
  char byte = 0;
  iovec text{&byte, 1};
  Carrier carrier{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = carrier.bytes;
  const std::size_t bytes = sent.size() * sizeof(int);
  message.msg_controllen = CMSG_SPACE(bytes);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(header), sent.data(), bytes);
  ssize_t bytes_sent = 0;
  do bytes_sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  while (bytes_sent < 0 && errno == EINTR);
  return bytes_sent == 1;
}

// Returns no descriptors if the other end is gone.
std::vector<int> receive_descriptors(int fd) {
  char byte = 0;
  iovec text{&byte, 1};
  Carrier carrier{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = carrier.bytes;
  message.msg_controllen = sizeof carrier.bytes;
  ssize_t got = 0;
  do got = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  const cmsghdr* header = got == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return {};
  std::vector<int> received((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  std::memcpy(received.data(), CMSG_DATA(header), received.size() * sizeof(int));
  return received;
}

// Writes or reads a number whose bytes may pass in parts. Returns false if the other end is gone.
// `call`: ::write or ::read.
bool pass_whole(auto call, int fd, pid_t& number) {
  char* bytes = reinterpret_cast<char*>(&number);
  for (std::size_t left = sizeof number; left > 0;) {
    const ssize_t passed = call(fd, bytes + sizeof number - left, left);
    if (passed < 0 && errno == EINTR) continue;
    if (passed <= 0) return false;
    left -= static_cast<std::size_t>(passed);
  }
  return true;
}

// Forks twice, so that the grandchild has no parent in this process once the intermediate process
// has ended. Returns the grandchild's pid, 0 in the grandchild itself, or the system's error as
// -errno.
pid_t fork_rank() {
  int ends[2];
  if (::pipe(ends) != 0) return -errno;
  const pid_t between = ::fork();
  const int error = errno;
  if (between == 0) {
    pid_t rank = ::fork();
    if (rank < 0) rank = -errno;
    if (rank != 0) ::_exit(pass_whole(::write, ends[1], rank) ? 0 : 1);
    ::close(ends[0]);
    ::close(ends[1]);
    return 0;
  }
  ::close(ends[1]);
  pid_t rank = between < 0 ? -error : -ECHILD;
  if (between > 0) {
    if (!pass_whole(::read, ends[0], rank)) rank = -ECHILD;
    while (::waitpid(between, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  ::close(ends[0]);
  return rank;
}

}  // namespace

Result<pid_t> spawn_server(const std::string& program, const std::vector<std::string>& arguments,
                           const char* command, int fd) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, fd, kServerFd);
  // An interpreter finds its libraries by the name under which it is started.
  std::vector<std::string> words = {arguments.empty() ? "lockstep" : program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.insert(words.end(), {command, std::to_string(kServerFd)});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return pid;
  return failed(refused_by_system("a rank's process cannot be started", error));
}

Status RankForkServer::start() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    return refused_by_system("no socket for a process of ranks can be made", errno);
  const Result<pid_t> pid = spawn_server(program_, arguments_, "rank-fork-server", fds[1]);
  ::close(fds[1]);
  if (!pid) {
    ::close(fds[0]);
    return pid.error();
  }
  pid_ = *pid;
  fd_ = fds[0];
  return {};
}

void RankForkServer::end() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ::close(fd_);
  pid_ = fd_ = -1;
}

Result<pid_t> RankForkServer::make(const std::vector<int>& fds) {
  if (pid_ < 0)
    if (const Status status = start(); !status.ok()) return failed(status);
  std::string text;
  pid_t rank = 0;
  Receive received = Receive::kClosed;
  if (send_descriptors(fd_, fds)) received = receive_message(fd_, text, kStartLimit);
  if (received == Receive::kMessage) std::from_chars(text.data(), text.data() + text.size(), rank);
  if (rank > 0) return rank;
  end();
  if (received == Receive::kTimeout)
    return failed(Status(Code::kTimeout, fmt::format("{} has not started a rank within {} s",
                                                     program_, kStartLimit.count())));
  if (rank < 0)
    return failed(refused_by_system(fmt::format("{} cannot start a rank", program_), -rank));
  return failed(Status(Code::kPeerLost, fmt::format("{} has ended", program_)));
}

int serve_rank_forks(int fd, RankProgram& program) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (true) {
    const std::vector<int> served = receive_descriptors(fd);
    if (served.empty()) break;
    const pid_t rank = fork_rank();
    if (rank == 0) {
      ::close(fd);
      return serve_ranks(served, program);
    }
    for (const int each : served) ::close(each);
    if (!send_message(fd, std::to_string(rank))) break;
  }
  return 0;
}

}  // namespace lockstep::properties
