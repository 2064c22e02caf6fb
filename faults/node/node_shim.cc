// node_shim: a library that is loaded before all others (LD_PRELOAD) into the process of a rank,
// for faults of its node. It shifts the wall clock by NodeSwitches::clock_shift_ns, and counts what
// the system refuses to the process. The monotonic clock stays what it is, as where somebody sets
// the clock of a machine. The system itself refuses descriptors and memory, by a limit of the
// process.
//
// Waits until a wall time mean the shifted one, so that they end as on a machine whose clock has
// jumped. A wait whose clock cannot be seen in the call (a condition variable) is one on the wall
// clock if its time is after 2001, as no machine runs for so long.
//
// Threads: any. Failure: without the file of the switches, every call does what it always does.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>

#include "faults/node/node_switches.h"

namespace {

using lockstep::faults::NodeSwitches;

constexpr std::int64_t kNanoseconds = 1'000'000'000;
constexpr time_t kYear2001 = 1'000'000'000;

std::atomic<NodeSwitches*> switches{nullptr};

__attribute__((constructor)) void open_switches() {
  const char* const file = std::getenv(lockstep::faults::kNodeSwitchesVariable);
  const int fd = file == nullptr ? -1 : ::open(file, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* const memory =
      ::mmap(nullptr, sizeof(NodeSwitches), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory != MAP_FAILED) switches = static_cast<NodeSwitches*>(memory);
}

// The next definition of a function. Condition variables have an older one, too.
template <typename Function>
Function* next(const char* name, const char* version = nullptr) {
  void* found = version == nullptr ? nullptr : ::dlvsym(RTLD_NEXT, name, version);
  if (found == nullptr) found = ::dlsym(RTLD_NEXT, name);
  return reinterpret_cast<Function*>(found);
}
#define NEXT(name, ...) next<decltype(name)>(#name __VA_OPT__(, ) __VA_ARGS__)

std::int64_t shift() {
  const NodeSwitches* const now = switches;
  return now == nullptr ? 0 : now->clock_shift_ns.load();
}

// For a read of the wall clock.
std::int64_t note_read() {
  const std::int64_t by = shift();
  if (by != 0) switches.load()->clock_reads.fetch_add(1);
  return by;
}

timespec shifted(timespec at, std::int64_t by) {
  std::int64_t nanoseconds = at.tv_nsec + by % kNanoseconds;
  at.tv_sec += by / kNanoseconds;
  if (nanoseconds < 0) {
    nanoseconds += kNanoseconds;
    --at.tv_sec;
  } else if (nanoseconds >= kNanoseconds) {
    nanoseconds -= kNanoseconds;
    ++at.tv_sec;
  }
  at.tv_nsec = nanoseconds;
  return at;
}

// A time of the process as one of the system.
timespec to_system(const timespec* at) {
  return at->tv_sec < kYear2001 ? *at : shifted(*at, -shift());
}

bool is_wall_clock(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

void note_refused_memory() {
  NodeSwitches* const now = switches;
  if (now != nullptr) now->refused_memory.fetch_add(1);
}

int note_descriptor(int fd) {
  const int error = errno;
  NodeSwitches* const now = switches;
  if (fd < 0 && error == EMFILE && now != nullptr) now->refused_descriptors.fetch_add(1);
  errno = error;
  return fd;
}

}  // namespace

extern "C" {

// ---- The wall clock ----

int clock_gettime(clockid_t clock, timespec* at) {
  static auto* const real = NEXT(clock_gettime);
  const int result = real(clock, at);
  if (result == 0 && is_wall_clock(clock)) *at = shifted(*at, note_read());
  return result;
}

int gettimeofday(timeval* __restrict at, void* __restrict zone) {
  static auto* const real = NEXT(gettimeofday);
  const int result = real(at, zone);
  if (result != 0) return result;
  const timespec now = shifted({at->tv_sec, at->tv_usec * 1000}, note_read());
  *at = {now.tv_sec, now.tv_nsec / 1000};
  return result;
}

time_t time(time_t* at) {
  timespec now{};
  (void)clock_gettime(CLOCK_REALTIME, &now);
  if (at != nullptr) *at = now.tv_sec;
  return now.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t* __restrict condition, pthread_mutex_t* __restrict mutex,
                           const timespec* __restrict until) {
  static auto* const real = NEXT(pthread_cond_timedwait, "GLIBC_2.3.2");
  const timespec at = to_system(until);
  return real(condition, mutex, &at);
}

int pthread_cond_clockwait(pthread_cond_t* __restrict condition, pthread_mutex_t* __restrict mutex,
                           clockid_t clock, const timespec* __restrict until) {
  static auto* const real = NEXT(pthread_cond_clockwait);
  const timespec at = is_wall_clock(clock) ? to_system(until) : *until;
  return real(condition, mutex, clock, &at);
}

int pthread_mutex_timedlock(pthread_mutex_t* __restrict mutex, const timespec* __restrict until) {
  static auto* const real = NEXT(pthread_mutex_timedlock);
  const timespec at = to_system(until);
  return real(mutex, &at);
}

int sem_timedwait(sem_t* __restrict semaphore, const timespec* __restrict until) {
  static auto* const real = NEXT(sem_timedwait);
  const timespec at = to_system(until);
  return real(semaphore, &at);
}

// ---- Memory ----

// Memory that an allocator asks the system for. Calls from within libc do not go through this
// function.
void* mmap(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  const auto got = ::syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
  if (got == -1 && errno == ENOMEM) note_refused_memory();
  return reinterpret_cast<void*>(got);
}
void* mmap64(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  return mmap(at, bytes, protection, flags, fd, offset);
}

int pthread_create(pthread_t* __restrict thread, const pthread_attr_t* __restrict attributes,
                   void* (*run)(void*), void* __restrict argument) {
  static auto* const real = NEXT(pthread_create, "GLIBC_2.34");
  const int error = real(thread, attributes, run, argument);
  if (error == EAGAIN) note_refused_memory();
  return error;
}

// ---- Descriptors ----

int socket(int domain, int type, int protocol) {
  static auto* const real = NEXT(socket);
  return note_descriptor(real(domain, type, protocol));
}
int accept(int fd, sockaddr* __restrict address, socklen_t* __restrict bytes) {
  static auto* const real = NEXT(accept);
  return note_descriptor(real(fd, address, bytes));
}
int accept4(int fd, sockaddr* __restrict address, socklen_t* __restrict bytes, int flags) {
  static auto* const real = NEXT(accept4);
  return note_descriptor(real(fd, address, bytes, flags));
}
int eventfd(unsigned int value, int flags) {
  static auto* const real = NEXT(eventfd);
  return note_descriptor(real(value, flags));
}
int epoll_create(int size);
int epoll_create1(int flags) {
  static auto* const real = next<int(int)>("epoll_create1");
  return note_descriptor(real(flags));
}
int epoll_create(int size) {
  static auto* const real = next<int(int)>("epoll_create");
  return note_descriptor(real(size));
}
int pipe2(int* fds, int flags) {
  static auto* const real = next<int(int*, int)>("pipe2");
  return note_descriptor(real(fds, flags));
}
int pipe(int* fds) {
  static auto* const real = next<int(int*)>("pipe");
  return note_descriptor(real(fds));
}
int dup(int fd) {
  static auto* const real = next<int(int)>("dup");
  return note_descriptor(real(fd));
}
// The mode is there only where a file may be made, and is harmless to read where it is not.
int open(const char* file, int flags, ...) {
  static auto* const real = NEXT(open);
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return note_descriptor(real(file, flags, mode));
}
// Both are one function where a file offset has 64 bits.
int open64(const char* file, int flags, ...) __attribute__((alias("open")));

}  // extern "C"
