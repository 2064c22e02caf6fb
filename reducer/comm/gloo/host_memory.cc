#include "reducer/comm/gloo/host_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/shared_collectives.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// The two places of each of two ranks have a megabyte, as a second cache has. Nothing else was
// tried.
constexpr std::size_t kPlaceBytes = 256 << 10;
constexpr std::size_t kHeadBytes = 4096;  // The secret is at the beginning; then come the rounds.
constexpr std::string_view kFileName = "/memfd:lockstep (deleted)";
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

struct Invitation {
  std::uint32_t magic = 0x4c534d31;  // The bytes spell "LSM1".
  std::int32_t file = -1;
  std::int64_t process = 0;
  std::array<char, 40> boot = {};  // The kernel's boot_id, which is that of the host.
  std::array<std::byte, 32> secret = {};
};

std::array<char, 40> boot_of_host() {
  std::array<char, 40> boot = {};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(boot.data(), boot.size() - 1);
  return boot;
}

std::string reason(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

// The words lie in memory of several processes, so the futexes are no private ones.
class FutexSleep final : public SharedRounds::Sleep {
 public:
  void sleep(SharedRounds::Word& bell, std::uint32_t seen) override {
    ::syscall(SYS_futex, &bell, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
  void wake(SharedRounds::Word& bell) override {
    ::syscall(SYS_futex, &bell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
};
static_assert(SharedRounds::Word::is_always_lock_free && sizeof(SharedRounds::Word) == 4);

FutexSleep& futex_sleep() {
  static FutexSleep sleep;
  return sleep;
}

}  // namespace

HostMemory::~HostMemory() { unmap(); }

std::size_t HostMemory::place_bytes() const {
  return std::max(kPlaceBytes, SharedCollective::least_place_bytes(size_));
}

std::size_t HostMemory::bytes() const {
  return kHeadBytes + SharedRounds::bytes_for(size_, place_bytes());
}

void HostMemory::refuse(std::string reason) {
  unmap();
  why_not_ = std::move(reason);
}

std::string HostMemory::map(int file) {
  void* const memory = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return reason("mapping the shared memory");
  memory_ = static_cast<std::byte*>(memory);
  ::madvise(memory, bytes(), MADV_DONTFORK);
  return {};
}

void HostMemory::unmap() {
  rounds_.reset();
  if (memory_ != nullptr) ::munmap(std::exchange(memory_, nullptr), bytes());
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

std::string HostMemory::make_and_invite() {
  LOCKSTEP_CHECK_EQ(rank_, 0);
  LOCKSTEP_CHECK(memory_ == nullptr);
  Invitation invitation;
  const auto length = static_cast<off_t>(bytes());
  rlimit longest{};
  ::getrlimit(RLIMIT_FSIZE, &longest);
  if (longest.rlim_cur < bytes()) {  // The system would end the process by a signal.
    refuse("the limit for the size of files (ulimit -f) is below " + std::to_string(bytes()) +
           " bytes");
    return {};
  }
  file_ = ::memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file_ < 0) {
    refuse(reason("making shared memory"));
  } else if (::ftruncate(file_, length) != 0 || ::fallocate(file_, 0, 0, length) != 0 ||
             ::fcntl(file_, F_ADD_SEALS, kSeals) != 0) {
    refuse(reason(("taking " + std::to_string(bytes()) + " bytes of shared memory").c_str()));
  } else if (std::string problem = map(file_); !problem.empty()) {
    refuse(std::move(problem));
  } else if (::getentropy(invitation.secret.data(), invitation.secret.size()) != 0) {
    refuse(reason("no random bytes for shared memory"));
  }
  if (memory_ == nullptr) return {};
  std::copy(invitation.secret.begin(), invitation.secret.end(), memory_);
  SharedRounds::prepare(memory_ + kHeadBytes, size_);
  invitation.file = file_;
  invitation.process = ::getpid();
  invitation.boot = boot_of_host();
  return {reinterpret_cast<const char*>(&invitation), sizeof invitation};
}

void HostMemory::open(std::string_view text) {
  LOCKSTEP_CHECK(rank_ != 0);
  LOCKSTEP_CHECK(memory_ == nullptr);
  Invitation invitation;
  if (text.size() != sizeof invitation) return refuse("rank 0 shares no memory");
  std::memcpy(&invitation, text.data(), sizeof invitation);
  if (invitation.magic != Invitation().magic) return refuse("rank 0 shares no memory");
  if (invitation.boot != boot_of_host()) return refuse("rank 0 is on another host");
  const std::string path =
      "/proc/" + std::to_string(invitation.process) + "/fd/" + std::to_string(invitation.file);
  const char* const other =
      "what is in the place of rank 0's memory is not that: it is in another container";
  // Opening another file could have effects, so its name is looked at first.
  std::array<char, 64> name = {};
  if (::readlink(path.c_str(), name.data(), name.size() - 1) < 0)
    return refuse(reason("finding the memory of rank 0"));
  if (std::string_view(name.data()) != kFileName) return refuse(other);
  file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file_ < 0) return refuse(reason("opening the memory of rank 0"));
  struct stat found {};
  const int seals = ::fcntl(file_, F_GET_SEALS);  // The system may have added one of its own.
  const bool is_whole = ::fstat(file_, &found) == 0 &&
                        found.st_size == static_cast<off_t>(bytes()) && seals >= 0 &&
                        (seals & kSeals) == kSeals;
  if (!is_whole) return refuse(other);
  if (std::string problem = map(file_); !problem.empty()) return refuse(std::move(problem));
  if (!std::equal(invitation.secret.begin(), invitation.secret.end(), memory_)) refuse(other);
}

void HostMemory::settle(int other) {
  if (other != kNone && is_mapped())
    refuse("rank " + std::to_string(other) + " cannot use the shared memory");
  if (!is_mapped()) return;
  ::close(std::exchange(file_, -1));
  rounds_ = std::make_unique<SharedRounds>(memory_ + kHeadBytes, rank_, size_, place_bytes(),
                                           futex_sleep());
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
