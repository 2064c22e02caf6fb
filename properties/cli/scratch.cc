#include "properties/cli/scratch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

namespace lockstep::properties {

namespace fs = std::filesystem;

namespace {

constexpr const char* kName = "lockstep-run-";
constexpr const char* kOwner = "owner";  // of the folder: locked as long as a process uses it
constexpr auto kNew = std::chrono::minutes(1);

std::string owner_of(const fs::path& folder) { return (folder / kOwner).string(); }

// Whether the folder is one of this user's runs, and no process of that run is left: it was killed.
// A folder that was made just now may have no lock yet.
bool is_abandoned(const fs::path& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return false;
  if (info.st_uid != ::geteuid()) return false;
  const int owner = ::open(owner_of(folder).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (owner < 0) return false;
  const bool is_old = ::fstat(owner, &info) == 0 && S_ISREG(info.st_mode) &&
                      std::chrono::system_clock::from_time_t(info.st_mtime) + kNew <
                          std::chrono::system_clock::now();
  const bool is_free = is_old && ::flock(owner, LOCK_EX | LOCK_NB) == 0;
  ::close(owner);
  return is_free;
}

// Runs that were killed leave their folders.
void remove_abandoned(const fs::path& system) {
  std::error_code error;
  for (fs::directory_iterator each(system, error), end; !error && each != end;
       each.increment(error)) {
    if (!each->path().filename().string().starts_with(kName)) continue;
    std::error_code ignored;
    if (is_abandoned(each->path())) fs::remove_all(each->path(), ignored);
  }
}

}  // namespace

ScratchFolder::ScratchFolder() {
  std::error_code error;
  const fs::path system = fs::temp_directory_path(error);
  if (error) return;
  remove_abandoned(system);
  std::string path = (fs::absolute(system, error) / (std::string(kName) + "XXXXXX")).string();
  if (error || ::mkdtemp(path.data()) == nullptr) return;
  path_ = path;
  // The processes that this one forks share the lock.
  lock_ = ::open(owner_of(path_).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (lock_ >= 0) (void)::flock(lock_, LOCK_EX | LOCK_NB);
  if (const char* before = ::getenv("TMPDIR")) {
    before_ = before;
    had_before_ = true;
  }
  ::setenv("TMPDIR", path_.c_str(), 1);
}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  if (lock_ >= 0) ::close(lock_);
  if (had_before_) {
    ::setenv("TMPDIR", before_.c_str(), 1);
  } else {
    ::unsetenv("TMPDIR");
  }
  // A rank whose worker was killed may live a moment longer, and create one more file.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    std::error_code error;
    fs::remove_all(path_, error);
    if (!error) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace lockstep::properties
