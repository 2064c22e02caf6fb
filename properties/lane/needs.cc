#include "properties/lane/needs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "properties/process/child.h"

namespace lockstep::properties {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::size_t kTrialStackBytes = std::size_t{64} << 10;
constexpr auto kTrialLimit = std::chrono::seconds(30);
constexpr int kLoopbackMs = 5000;

// The bytes of /dev/shm that a communicator of NCCL uses for each of its ranks: 32.6 MiB were
// measured. LOCKSTEP_NCCL_SHM_MIB=N is for an NCCL that uses a different amount.
std::uint64_t shared_bytes_per_rank() {
  const char* text = std::getenv("LOCKSTEP_NCCL_SHM_MIB");
  std::uint64_t mebibytes = 33;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), mebibytes);
  return mebibytes * kMiB;
}

constexpr std::uint64_t kNcclRanks = 3;
// There are at most two reducers with two groups each.
constexpr std::uint64_t kNcclGroups = 4;

Status lacks(const std::string& what) { return Status(Code::kInvalidArgument, what); }

Status try_descriptors(const Needs& needs) {
  std::vector<int> opened;
  int error = 0;
  while (opened.size() < needs.descriptors && error == 0) {
    const int fd = ::open("/", O_PATH | O_CLOEXEC);
    if (fd < 0)
      error = errno;
    else
      opened.push_back(fd);
  }
  for (const int fd : opened) ::close(fd);
  if (error == 0) return {};
  return lacks(fmt::format(
      "{} needs {} open files in a process, and after {} the system says: {}; "
      "{}",
      needs.who, needs.descriptors, opened.size(), std::strerror(error), advice_for(error)));
}

void* wait_for_gate(void* gate) {
  auto* mutex = static_cast<pthread_mutex_t*>(gate);
  ::pthread_mutex_lock(mutex);
  ::pthread_mutex_unlock(mutex);
  return nullptr;
}

Status try_threads(const Needs& needs) {
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kTrialStackBytes);
  ::pthread_mutex_lock(&gate);
  std::vector<pthread_t> threads;
  int error = 0;
  while (threads.size() < needs.threads && error == 0) {
    pthread_t thread;
    error = ::pthread_create(&thread, &attributes, wait_for_gate, &gate);
    if (error == 0) threads.push_back(thread);
  }
  ::pthread_mutex_unlock(&gate);
  for (const pthread_t thread : threads) ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (error == 0) return {};
  return lacks(fmt::format(
      "{} needs {} threads and processes, and after {} the system says: {}; "
      "{}",
      needs.who, needs.threads, threads.size(), std::strerror(error), advice_for(error)));
}

Status try_address_space(const Needs& needs) {
  void* memory = ::mmap(nullptr, needs.address_bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory != MAP_FAILED) {
    ::munmap(memory, needs.address_bytes);
    return {};
  }
  const int error = errno;
  return lacks(
      fmt::format("{} needs {} MiB of address space in a process, and the system says: "
                  "{}; {}",
                  needs.who, needs.address_bytes / kMiB, std::strerror(error), advice_for(error)));
}

int write_whole(int fd, std::uint64_t bytes) {
  const std::vector<char> zeros(std::size_t{64} << 10);
  while (bytes > 0) {
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, zeros.size()));
    const ssize_t written = ::write(fd, zeros.data(), part);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes -= static_cast<std::uint64_t>(written);
  }
  return 0;
}

Status try_files(const Needs& needs) {
  // This uses the name that the user gave, because the error must name a folder that does not
  // exist, too.
  const char* named = std::getenv("TMPDIR");
  const std::string folder = named != nullptr && *named != '\0' ? named : "/tmp";
  const int error = try_file_in(folder, needs.file_bytes);
  if (error == 0) return {};
  return lacks(fmt::format(
      "{} needs {} KiB in the folder for temporary files, {}, and the system "
      "says: {}; {}",
      needs.who, needs.file_bytes >> 10, folder, std::strerror(error), advice_for(error)));
}

Status try_own_program(const Needs& needs) {
  if (!needs.own_program || ::access("/proc/self/exe", X_OK) == 0) return {};
  return lacks(
      fmt::format("{} starts ranks as processes of this program, which it finds by "
                  "/proc/self/exe, and the system says: {}; mount /proc (mount -t proc "
                  "proc /proc)",
                  needs.who, std::strerror(errno)));
}

Status try_shared_memory(const Needs& needs) {
  struct statvfs found {};
  if (::statvfs("/dev/shm", &found) != 0)
    return lacks(
        fmt::format("{} needs {} MiB in /dev/shm, and the system says: {}; mount it "
                    "(mount -t tmpfs tmpfs /dev/shm)",
                    needs.who, needs.shared_bytes / kMiB, std::strerror(errno)));
  const std::uint64_t free = std::uint64_t{found.f_bavail} * found.f_frsize;
  if (free >= needs.shared_bytes) return {};
  return lacks(fmt::format(
      "{} needs {} MiB in /dev/shm, where each communicator of NCCL takes {} "
      "MiB for each rank, and {} MiB are free there; make it larger (docker "
      "run --shm-size=1g, or mount -o remount,size=1g /dev/shm)",
      needs.who, needs.shared_bytes / kMiB, shared_bytes_per_rank() / kMiB, free / kMiB));
}

// Returns 0, or the error of the system.
int connect_to_itself() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof address;
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int error = 0;
  if (listener < 0 || client < 0 || ::bind(listener, generic, bytes) != 0 ||
      ::listen(listener, 1) != 0 || ::getsockname(listener, generic, &bytes) != 0 ||
      (::connect(client, generic, bytes) != 0 && errno != EINPROGRESS))
    error = errno;
  pollfd entry{client, POLLOUT, 0};
  if (error == 0 && ::poll(&entry, 1, kLoopbackMs) != 1) error = ETIMEDOUT;
  bytes = sizeof error;
  if (error == 0) (void)::getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &bytes);
  for (const int fd : {listener, client})
    if (fd >= 0) ::close(fd);
  return error;
}

Status try_loopback(const Needs& needs) {
  const int error = connect_to_itself();
  if (error == 0) return {};
  return lacks(fmt::format(
      "{} connects its ranks at 127.0.0.1, and a connection there fails: {}; set the loopback "
      "interface up (ip link set lo up)",
      needs.who, std::strerror(error)));
}

Status try_all(const Needs& needs) {
  if (needs.loopback) LOCKSTEP_RETURN_IF_ERROR(try_loopback(needs));
  LOCKSTEP_RETURN_IF_ERROR(try_own_program(needs));
  if (needs.shared_bytes > 0) LOCKSTEP_RETURN_IF_ERROR(try_shared_memory(needs));
  if (needs.file_bytes > 0) LOCKSTEP_RETURN_IF_ERROR(try_files(needs));
  if (needs.descriptors > 0) LOCKSTEP_RETURN_IF_ERROR(try_descriptors(needs));
  if (needs.address_bytes > 0) LOCKSTEP_RETURN_IF_ERROR(try_address_space(needs));
  if (needs.threads > 0) LOCKSTEP_RETURN_IF_ERROR(try_threads(needs));
  return {};
}

void raise_descriptors(std::uint64_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t enough = wanted + 64;  // with those that are open already
  if (limit.rlim_cur >= enough || limit.rlim_max <= limit.rlim_cur) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, enough);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);  // the trial shows whether it is enough
}

}  // namespace

int try_file_in(const std::string& folder, std::uint64_t bytes) {
  std::string file = (std::filesystem::path(folder) / "lockstep-trial-XXXXXX").string();
  const int fd = ::mkostemp(file.data(), O_CLOEXEC);
  if (fd < 0) return errno;
  int error = write_whole(fd, bytes);
  // Some file systems report a full disk only here.
  if (::close(fd) != 0 && error == 0) error = errno;
  ::unlink(file.c_str());
  return error;
}

// The figures were measured over many cases (the largest process, and all processes together), with
// a margin.
Needs needs_of(LaneKind lane, const Subject& subject, int jobs) {
  const auto workers = static_cast<std::uint64_t>(std::max(jobs, 1));
  Needs needs;
  // What the simulator needs, every lane does, and it is asked for first.
  const std::string who =
      lane == LaneKind::kSim ? "this program" : fmt::format("the {} lane", name_of(lane));
  needs.who = fmt::format("{} with {} {}", who, workers, workers == 1 ? "job" : "jobs");
  if (lane == LaneKind::kSim) {
    needs.descriptors = 8 + workers;
    needs.threads = 1 + 2 * workers;
    needs.address_bytes = 256 * kMiB;
    return needs;
  }
  needs.own_program = true;
  needs.loopback = lane == LaneKind::kGloo;
  needs.descriptors = 512;
  needs.threads = 64 + 80 * workers;
  needs.address_bytes = 2048 * kMiB;
  needs.file_bytes = std::uint64_t{512} << 10;
  if (subject.has_own_group()) needs.address_bytes *= 2;
  if (lane == LaneKind::kNccl)
    needs.shared_bytes = workers * kNcclRanks * kNcclGroups * shared_bytes_per_rank();
  return needs;
}

Needs still_needed(Needs needs) {
  needs.who += ", which runs,";
  needs.threads = std::min<std::uint64_t>(needs.threads, 4);
  needs.shared_bytes = std::min(needs.shared_bytes, shared_bytes_per_rank());
  return needs;
}

Status check_needs(const Needs& needs) {
  raise_descriptors(needs.descriptors);
  Child child;
  LOCKSTEP_RETURN_IF_ERROR(child.start([&needs](ChildLine& line) {
    const Status status = try_all(needs);
    line.send(status.ok() ? std::string() : status.failure().detail);
  }));
  std::string told;
  switch (child.receive(told, kTrialLimit)) {
    case Child::Received::kMessage:
      return told.empty() ? Status() : Status(Code::kInternal, told);
    case Child::Received::kNothing:
      return lacks(fmt::format("what {} needs could not be looked for within {} s", needs.who,
                               kTrialLimit.count()));
    case Child::Received::kFinished:
    case Child::Received::kLost:
      break;
  }
  return lacks(
      fmt::format("the process that looked for what {} needs {}", needs.who, child.how_lost()));
}

}  // namespace lockstep::properties
