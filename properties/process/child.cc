#include "properties/process/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "properties/process/message.h"
#include "properties/process/process_end.h"
#include "properties/process/system_error.h"
#include "reducer/base/check.h"

namespace lockstep::properties {
namespace {

using Clock = std::chrono::steady_clock;

// The exit statuses of a child that finds its line closed, or written to by somebody else; no
// subject's by chance.
constexpr int kClosedStatus = 113;
constexpr int kForeignStatus = 114;
constexpr char kNewsMark = 'n';
constexpr char kDoneMark = 'd';
constexpr std::size_t kPrefixBytes = sizeof(std::uint64_t) + 1;  // the nonce, and the kind

constexpr auto kSendLimit = std::chrono::seconds(10);
constexpr auto kMessageLimit = std::chrono::seconds(10);  // from its first byte to its last
constexpr auto kEndLimit = std::chrono::seconds(1);       // to end after the socket was closed
constexpr auto kLook = std::chrono::milliseconds(50);     // how often the parent looks for an end

constexpr const char* kWrote =
    "wrote to a descriptor that is not the subject's, its connection to this program";

// The process groups of this process's children, each named by its child, and the signal that one
// of its processes has sent to this process. A signal handler uses them, too.
struct ChildGroup {
  std::atomic<pid_t> id{0};  // 0: none
  std::atomic<int> signal{0};
};
static_assert(std::atomic<pid_t>::is_always_lock_free);
static_assert(std::atomic<int>::is_always_lock_free);
constexpr std::size_t kMaxGroups = 128;  // signals of further children count as the user's
std::array<ChildGroup, kMaxGroups> g_groups;

ChildGroup* find_group(pid_t id) noexcept {
  const auto at = std::find_if(g_groups.begin(), g_groups.end(),
                               [id](const ChildGroup& group) { return group.id == id; });
  return at == g_groups.end() ? nullptr : at;
}

int signal_of(pid_t child) {
  const ChildGroup* const group = find_group(child);
  return group == nullptr ? 0 : group->signal.load();
}

// While one lives, this process handles no signals.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// This process's ends of the lines to its children. A child must not hold the lines to the others.
std::vector<int>& open_lines() {
  static std::vector<int> lines;
  return lines;
}

std::uint64_t make_nonce() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace

bool is_signal_of_child(int signal, pid_t sender) noexcept {
  if (sender <= 0) return false;
  const int error = errno;
  const pid_t id = ::getpgid(sender);  // 0: a group of another PID namespace, which has no child
  ChildGroup* const group = id > 0 ? find_group(id) : nullptr;
  errno = error;
  if (group == nullptr) return false;
  group->signal = signal;
  return true;
}

bool ChildLine::say(char kind, const std::string& text) {
  check();
  std::string message(sizeof nonce_, '\0');
  std::memcpy(message.data(), &nonce_, sizeof nonce_);
  const bool is_sent = send_message(fd_, message + kind + text);
  unread_ = unread_by_parent();
  return is_sent;
}

bool ChildLine::send(const std::string& text) { return say(kNewsMark, text); }

bool ChildLine::receive(std::string& text) const {
  return receive_message(fd_, text, std::nullopt) == Receive::kMessage;
}

void ChildLine::check() {
  if (::fcntl(fd_, F_GETFD) < 0) ::_exit(kClosedStatus);
  const int unread = unread_by_parent();
  if (unread > unread_) ::_exit(kForeignStatus);
  unread_ = unread;
}

// Returns how much of what was written to the line the parent has not read yet, in the kernel's
// measure, which counts more than the bytes; 0 where the kernel does not say.
int ChildLine::unread_by_parent() const {
  int unread = 0;
  return ::ioctl(fd_, SIOCOUTQ, &unread) == 0 ? unread : 0;
}

void ChildLine::finish() {
  say(kDoneMark, {});
  ::_exit(0);
}

Status Child::start(const std::function<void(ChildLine&)>& body) {
  LOCKSTEP_CHECK(!is_running());
  LOCKSTEP_RETURN_IF_ERROR(output_.start());
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    return refused_by_system("no socket for a process of its own can be made", errno);
  how_lost_.clear();
  end_status_.reset();
  words_ = std::make_unique<LastWords>();
  nonce_ = make_nonce();
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  // Until the child's group is known, so that no signal of the child's comes before.
  std::optional<SignalsBlocked> blocked(std::in_place);
  const pid_t pid = ::fork();
  if (pid < 0) {
    const int error = errno;
    ::close(fds[0]);
    ::close(fds[1]);
    return refused_by_system("a process of its own cannot be started", error);
  }
  if (pid == 0) {
    ::close(fds[0]);
    for (const int line : open_lines()) ::close(line);
    open_lines().clear();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::setpgid(0, 0);  // Ctrl-C is for the parent, which ends its children in order
    for (ChildGroup& group : g_groups) group.id = 0;
    output_.take_over();
    blocked.reset();
    words_->listen();
    ChildLine line(fds[1], nonce_);
    body(line);
    line.finish();
  }
  ::close(fds[1]);
  output_.let_go();
  pid_ = pid;
  fd_ = fds[0];
  open_lines().push_back(fd_);
  if (ChildGroup* const group = find_group(0)) {
    group->signal = 0;
    group->id = pid_;
  }
  return {};
}

bool Child::has_ended() const { return is_running() && properties::has_ended(pid_); }

bool Child::has_news() const {
  if (!is_running()) return false;
  pollfd entry{fd_, POLLIN, 0};
  return signal_of(pid_) != 0 || has_ended() || ::poll(&entry, 1, 0) > 0;
}

std::string Child::take_stacks() {
  constexpr auto kPatience = std::chrono::milliseconds(300);
  if (words_ == nullptr) return {};
  if (is_running()) words_->ask(pid_, kPatience);
  return words_->take();
}

bool Child::send(const std::string& text) {
  return is_running() && send_message(fd_, text, kSendLimit);
}

Child::Received Child::receive(std::string& text, std::chrono::milliseconds limit) {
  if (!is_running()) return Received::kLost;
  const Clock::time_point deadline = Clock::now() + limit;
  while (true) {
    if (const int signal = signal_of(pid_); signal != 0)
      return lose_now(fmt::format("sent signal {} ({}) to the program that runs it", signal,
                                  ::strsignal(signal)));
    // This comes before the look at the socket, so that everything the child sent before its end is
    // there.
    const bool ended = has_ended();
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd entry{fd_, POLLIN, 0};
    const auto wait = ended ? std::chrono::milliseconds(0) : std::min(left, kLook);
    if (::poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(wait.count(), 0))) > 0) break;
    if (ended) return lose("ended, while a process that it had started held its connection");
    if (left.count() <= 0) return Received::kNothing;
  }
  const Receive got = receive_message(fd_, text, kMessageLimit);
  if (got == Receive::kClosed) return lose("closed its connection to this program");
  if (got == Receive::kTimeout) return lose_now("broke off in the middle of a message");
  if (got == Receive::kForeign) return lose_now(kWrote);
  const bool is_ours =
      text.size() >= kPrefixBytes && std::memcmp(text.data(), &nonce_, sizeof nonce_) == 0;
  if (!is_ours) return lose_now(kWrote);
  const char kind = text[kPrefixBytes - 1];
  text.erase(0, kPrefixBytes);
  if (kind == kNewsMark) return Received::kMessage;
  how_lost_ = "finished without an answer";  // where one was due
  end();
  return Received::kFinished;
}

// The child may be about to end, and then that says more.
Child::Received Child::lose(const std::string& why) {
  const std::optional<int> status = end_within(pid_, kEndLimit);
  if (!status) return lose_now(why);
  const bool has_exited = WIFEXITED(*status);
  if (has_exited && WEXITSTATUS(*status) == kClosedStatus) return lose_now(why);
  if (has_exited && WEXITSTATUS(*status) == kForeignStatus) return lose_now(kWrote);
  end_status_ = status;
  return lose_now(describe_end(*status) +
                  (has_exited ? ", without having said that it was done" : ""));
}

Child::Received Child::lose_now(const std::string& how) {
  how_lost_ = how;
  end();
  return Received::kLost;
}

void Child::end() {
  if (!is_running()) return;
  ::kill(-pid_, SIGKILL);  // with ranks and others that it may have left behind
  (void)end_within(pid_, std::chrono::milliseconds(0));
  if (clean_up_) clean_up_(pid_);
  output_.finish();
  std::erase(open_lines(), fd_);
  ::close(fd_);
  if (ChildGroup* const group = find_group(pid_)) group->id = 0;
  pid_ = -1;
  fd_ = -1;
}

std::string ask_in_child(const std::function<std::string()>& work, std::chrono::milliseconds limit,
                         const std::string& silence) {
  Child child;
  const Status started = child.start([&](ChildLine& line) { line.send(work()); });
  if (!started.ok()) return started.failure().detail;
  std::string text;
  const Child::Received received = child.receive(text, limit);
  if (received == Child::Received::kMessage) return text;
  if (received == Child::Received::kNothing) return silence;
  return "the process that started it " + child.how_lost();
}

}  // namespace lockstep::properties
