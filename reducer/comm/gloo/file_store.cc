#include "reducer/comm/gloo/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using std::chrono::microseconds;

constexpr platform::Duration kFirstPoll = microseconds(200);
constexpr platform::Duration kLongestPoll = microseconds(5000);
constexpr std::size_t kLongestSpelledName = 180;  // File systems allow 255.
constexpr int kMaxTemporaryTries = 1000;
constexpr std::size_t kLargestFile = std::size_t{64} << 20;
constexpr std::string_view kMagic = "lockstep-kv1\n";

// A file descriptor that closes itself.
class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor() const { return descriptor_; }
  int close() { return ::close(std::exchange(descriptor_, -1)); }

 private:
  int descriptor_;
};

Status refused(const std::string& action, const std::string& path, int error) {
  const bool is_argument = error == ENOENT || error == ENOTDIR || error == EACCES ||
                           error == EPERM || error == EROFS || error == ENAMETOOLONG;
  return Status(is_argument ? Code::kInvalidArgument : Code::kTransport,
                "file store: cannot " + action + " " + path + ": " + std::strerror(error));
}

std::uint64_t fnv1a(std::string_view bytes, std::uint64_t hash) {
  for (const char byte : bytes) {
    hash ^= static_cast<unsigned char>(byte);
    hash *= 0x100000001b3u;
  }
  return hash;
}

void append_hex(std::string& out, std::uint64_t value, int digits) {
  LOCKSTEP_CHECK_LE(digits, 16);
  for (int i = digits - 1; i >= 0; --i) out += "0123456789abcdef"[(value >> (4 * i)) & 0xf];
}

// The contents of a file: the magic, the length of the key, the key, and the value. The key is
// there so that a reader notices a collision of hashed names.
std::string pack(std::string_view key, std::string_view value) {
  std::string out(kMagic);
  append_hex(out, key.size(), 16);
  out.append(key).append(value);
  return out;
}

Result<std::string> unpack(const std::string& path, std::string_view key, std::string_view bytes) {
  const std::string header = pack(key, "");
  if (bytes.substr(0, header.size()) != header)
    return failed(Status(Code::kCorrupted, "file store: " + path + " does not hold the key '" +
                                               std::string(key) +
                                               "': another program's file, or a damaged one"));
  return std::string(bytes.substr(header.size()));
}

Status write_all(int descriptor, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return refused("write", path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return Status();
}

// Makes a file with an unused name and writes the bytes to it.
Result<std::string> write_temporary(const std::string& directory, std::string_view bytes) {
  static platform::Atomic<std::uint64_t> counter{0};
  std::string path;
  int descriptor = -1;
  // Processes on several machines may have the same process number, and a crashed one leaves files.
  for (int i = 0; descriptor < 0 && i < kMaxTemporaryTries; ++i) {
    path = directory + "/t." + std::to_string(::getpid()) + "." + std::to_string(counter++);
    descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (descriptor < 0 && errno != EEXIST && errno != EINTR)
      return failed(refused("create", path, errno));
  }
  if (descriptor < 0) return failed(refused("create", path, EEXIST));
  File file(descriptor);
  Status status = write_all(file.descriptor(), bytes, path);
  // Some file systems report a full disk only here.
  if (file.close() != 0 && status.ok()) status = refused("write", path, errno);
  if (status.ok()) return path;
  ::unlink(path.c_str());
  return failed(std::move(status));
}

// The error for something that lies where a key's file should be, and that no FileStore wrote.
Status foreign(const std::string& path, const std::string& what) {
  return Status(Code::kCorrupted, "file store: " + path + " " + what +
                                      ", so no FileStore wrote it. Remove it, and use a fresh "
                                      "directory that belongs to this run alone");
}

// Reads a whole file; false when there is none. It reads only regular files, because opening and
// reading a pipe or a device could take for ever.
Result<bool> read_file(const std::string& path, std::string& bytes) {
  File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.descriptor() < 0) {
    if (errno == ENOENT || errno == EINTR) return false;
    if (errno == ENXIO) return failed(foreign(path, "is not a regular file"));
    return failed(refused("open", path, errno));
  }
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) return failed(refused("look at", path, errno));
  if (!S_ISREG(status.st_mode)) return failed(foreign(path, "is not a regular file"));
  bytes.clear();
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::read(file.descriptor(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed(refused("read", path, errno));
    if (count == 0) return true;
    bytes.append(buffer, static_cast<std::size_t>(count));
    if (bytes.size() > kLargestFile) return failed(foreign(path, "has more than 64 MiB"));
  }
}

Status check_directory(const std::string& directory) {
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return refused("use", directory, errno);
  if (!S_ISDIR(status.st_mode)) return refused("use", directory, ENOTDIR);
  return Status();
}

}  // namespace

std::string file_name_of(std::string_view key) {
  std::string name = "k.";
  for (const char byte : key) {
    const bool is_safe = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                         (byte >= '0' && byte <= '9') || byte == '-' || byte == '_' || byte == '.';
    if (is_safe) {
      name += byte;
    } else {
      name += '%';
      append_hex(name, static_cast<unsigned char>(byte), 2);
    }
  }
  if (name.size() <= kLongestSpelledName) return name;
  name = "h.";
  append_hex(name, fnv1a(key, 0xcbf29ce484222325u), 16);
  append_hex(name, fnv1a(key, 0x9e3779b97f4a7c15u), 16);
  LOCKSTEP_CHECK_LE(name.size(), kLongestSpelledName);
  return name;
}

FileStore::FileStore(std::string directory) : directory_(std::move(directory)) {}

std::string FileStore::path_of(std::string_view key) const {
  return directory_ + "/" + file_name_of(key);
}

Result<bool> FileStore::set(std::string_view key, std::string_view value) {
  const std::string path = path_of(key);
  const std::string packed = pack(key, value);
  if (packed.size() > kLargestFile)
    return failed(Status(Code::kInvalidArgument,
                         "file store: a value of " + std::to_string(value.size()) +
                             " bytes is too large: with its key it may have up to 64 MiB"));
  Result<std::string> temporary = write_temporary(directory_, packed);
  if (!temporary) return failed(std::move(temporary.error()));
  const bool is_linked = ::link(temporary->c_str(), path.c_str()) == 0;
  const int error = errno;
  ::unlink(temporary->c_str());
  if (is_linked) return true;
  if (error == EEXIST) return false;
  return failed(refused("link", path, error));
}

Result<std::string> FileStore::get(std::string_view key, platform::Deadline deadline) {
  static_assert(kFirstPoll < kLongestPoll);  // The first turn is known by its interval.
  const std::string path = path_of(key);
  platform::Mutex mutex("file_store.poll");
  platform::CondVar nobody_notifies("file_store.poll");
  std::string bytes;
  platform::Duration interval = kFirstPoll;
  for (;;) {
    const Result<bool> found = read_file(path, bytes);
    if (!found) return failed(found.error());
    if (*found) return unpack(path, key, bytes);
    if (deadline.passed()) break;
    if (interval == kFirstPoll)
      if (Status status = check_directory(directory_); !status.ok())
        return failed(std::move(status));
    platform::MutexLock lock(mutex);
    const platform::Duration pause = std::min(interval, deadline.remaining());
    nobody_notifies.wait(mutex, platform::Deadline::in(pause), [] { return false; });
    interval = std::min(interval * 5 / 4, kLongestPoll);
  }
  return failed(Status(Code::kTimeout, "nobody set the key '" + std::string(key) + "' (" + path +
                                           ") before the deadline"));
}

Result<bool> FileStore::contains(std::string_view key) {
  const std::string path = path_of(key);
  if (::access(path.c_str(), F_OK) == 0) return true;
  if (errno != ENOENT) return failed(refused("look up", path, errno));
  if (Status status = check_directory(directory_); !status.ok()) return failed(std::move(status));
  return false;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
