#include "benchmarks/ranks.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <vector>

#include "reducer/base/check.h"

namespace lockstep::benchmarks {
namespace {

volatile sig_atomic_t last_signal = 0;

void note_signal(int number) { last_signal = number; }

[[noreturn]] void become_rank(int rank, pid_t parent, const std::function<int(int)>& body) {
  ::signal(SIGINT, SIG_IGN);  // Ctrl-C reaches every process of a terminal; the parent ends ranks
  ::signal(SIGTERM, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::_exit(body(rank));
}

void end_all(const std::vector<pid_t>& children) {
  for (const pid_t child : children) ::kill(child, SIGKILL);
}

// Waits for the children that have ended. Returns false if one of them failed.
bool reap(std::vector<pid_t>& children) {
  bool is_well = true;
  int status = 0;
  for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    std::erase(children, ended);
    is_well = is_well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return is_well;
}

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes) : bytes_(bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  LOCKSTEP_CHECK(memory != MAP_FAILED);
  data_ = static_cast<std::byte*>(memory);
}

SharedMemory::~SharedMemory() { ::munmap(data_, bytes_); }

struct MeetingPoint::State {
  pthread_barrier_t barrier;
  int ranks = 0;
  std::atomic<int> arrived{0};
  std::atomic<int> meetings{0};
};

MeetingPoint::MeetingPoint(int ranks) : memory_(sizeof(State)) {
  state_ = new (memory_.data()) State;
  state_->ranks = ranks;
  pthread_barrierattr_t attributes;
  ::pthread_barrierattr_init(&attributes);
  ::pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  LOCKSTEP_CHECK_EQ(
      ::pthread_barrier_init(&state_->barrier, &attributes, static_cast<unsigned>(ranks)), 0);
  ::pthread_barrierattr_destroy(&attributes);
}

MeetingPoint::~MeetingPoint() = default;  // a killed rank may still be inside

// The barrier sleeps while the slower ranks prepare, and wakes its sleepers one after another. So
// the ranks meet a second time, awake.
void MeetingPoint::meet() {
  ::pthread_barrier_wait(&state_->barrier);
  const int before = state_->meetings.load();
  if (state_->arrived.fetch_add(1) + 1 == state_->ranks) {
    state_->arrived = 0;
    state_->meetings = before + 1;
    return;
  }
  while (state_->meetings.load() == before) ::sched_yield();
}

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = note_signal;  // without SA_RESTART: it ends waitpid()
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

int run_ranks(int ranks, const std::function<int(int rank)>& body) {
  if (last_signal != 0) return 128 + last_signal;
  // A signal that arrives just before the wait must end it, so signals are unblocked only during
  // the wait.
  sigset_t wanted;
  sigset_t before;
  ::sigemptyset(&wanted);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM}) ::sigaddset(&wanted, number);
  ::sigprocmask(SIG_BLOCK, &wanted, &before);
  const pid_t parent = ::getpid();
  std::vector<pid_t> children;
  int code = 0;
  for (int rank = 0; rank < ranks && code == 0; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::sigprocmask(SIG_SETMASK, &before, nullptr);
      become_rank(rank, parent, body);
    }
    if (child < 0) code = 1;
    if (child > 0) children.push_back(child);
  }
  if (code != 0) end_all(children);
  while (!children.empty()) {
    int number = 0;
    ::sigwait(&wanted, &number);
    if (number != SIGCHLD) last_signal = number;
    const bool is_well = reap(children) && number == SIGCHLD;
    if (is_well) continue;
    if (code == 0) code = number == SIGCHLD ? 1 : 128 + number;
    end_all(children);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return code;
}

}  // namespace lockstep::benchmarks
