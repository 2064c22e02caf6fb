// Reads and writes case files: the part of case_json.h that uses the file system.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "properties/case/case_json.h"

namespace lockstep::properties {
namespace {

std::string reason(int error) { return std::strerror(error); }

std::string advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space or choose another folder";
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose a folder that you may write to";
    case ENOENT:
    case ENOTDIR:
      return "create the folder first";
    case EFBIG:
      return "raise the limit on file sizes (ulimit -f)";
    case EISDIR:
      return "give the name of a file in it";
    default:
      return "choose another folder";
  }
}

Status cannot_write(const std::string& path, int error) {
  return {Code::kInvalidArgument,
          fmt::format("cannot write {}: {}; {}", path, reason(error), advice(error))};
}

Status cannot_read(const std::string& path, int error) {
  const char* what_to_do = error == ENOENT ? "check the path" : "check its permissions";
  if (error == EISDIR) what_to_do = "give one file of the folder";
  if (error == ETIMEDOUT) what_to_do = "it is a pipe into which nobody writes";
  return {Code::kInvalidArgument,
          fmt::format("cannot read {}: {}; {}", path, reason(error), what_to_do)};
}

// Closes a file descriptor at the end of the scope, unless it was released.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int close() {  // returns the error, or 0
    const int result = ::close(value_);
    value_ = -1;
    return result == 0 ? 0 : errno;
  }

 private:
  int value_;
};

// How long the other end of a pipe may do nothing.
constexpr int kPatienceMs = 30'000;

bool is_ready(int descriptor, short event) {
  pollfd entry{descriptor, event, 0};
  int ready = 0;
  do {
    ready = ::poll(&entry, 1, kPatienceMs);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// Returns the error, or 0.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      if (!is_ready(descriptor, POLLOUT)) return ETIMEDOUT;
      continue;
    }
    if (written <= 0) return written < 0 ? errno : EIO;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// Returns the error, or 0.
int fill(Descriptor& file, std::string_view text) {
  if (const int error = write_all(file.get(), text); error != 0) return error;
  if (::fsync(file.get()) != 0) return errno;
  return file.close();
}

// Creates a file beside `path`, with a name that no other writer uses.
int open_temporary(const std::string& path, std::string& temporary) {
  static std::atomic<unsigned> counter{0};
  for (;;) {
    temporary = fmt::format("{}.{}.{}.tmp", path, ::getpid(), counter.fetch_add(1));
    const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
}

void sync_folder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() >= 0) (void)::fsync(descriptor.get());  // the file itself is already safe
}

// What is at the place of a file that is to be written. The system's own links, such as
// /dev/stdout, count as what they lead to.
enum class Target : std::uint8_t { kFile, kLink, kDeviceOrPipe };

Target target_at(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))
    return Target::kFile;
  const bool is_of_system = path.starts_with("/dev/") || path.starts_with("/proc/");
  return S_ISLNK(info.st_mode) && !is_of_system ? Target::kLink : Target::kDeviceOrPipe;
}

// Whoever may write to the folder of a link decides where it leads.
Status is_link(const std::string& path) {
  return {Code::kInvalidArgument,
          fmt::format("cannot write {}: it is a symbolic link; remove it, or give the name of the "
                      "file to which it leads",
                      path)};
}

// A device or a pipe stays what it is, and takes the text. Nobody waits for a pipe that nobody
// reads.
Status write_into(const std::string& path, std::string_view text) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  int error = file.get() < 0 ? errno : write_all(file.get(), text);
  if (error == 0) error = file.close();
  if (error == ENXIO || error == ETIMEDOUT)
    return {Code::kInvalidArgument,
            fmt::format("cannot write {}: it is a pipe that nobody reads; start its reader first",
                        path)};
  return error == 0 ? Status() : cannot_write(path, error);
}

}  // namespace

Status write_file(const std::string& path, std::string_view text) {
  const Target target = target_at(path);
  if (target == Target::kLink) return is_link(path);
  if (target == Target::kDeviceOrPipe) return write_into(path, text);
  std::string temporary;
  Descriptor file(open_temporary(path, temporary));
  if (file.get() < 0) return cannot_write(path, errno);
  int error = fill(file, text);
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    return cannot_write(path, error);
  }
  sync_folder(path);
  return {};
}

Status check_can_write(const std::string& path) {
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return cannot_write(path, EISDIR);
  const Target target = target_at(path);
  if (target == Target::kLink) return is_link(path);
  if (target == Target::kDeviceOrPipe) return {};
  std::string temporary;
  const Descriptor file(open_temporary(path, temporary));
  if (file.get() < 0) return cannot_write(path, errno);
  ::unlink(temporary.c_str());
  return {};
}

Status write_case(const std::string& path, const Case& value, std::string_view about,
                  const FoundWith& found) {
  return write_file(path, to_json(value, about, found));
}

namespace {

// Waits if a pipe has nothing to read yet, but not for ever. Returns the number of bytes, 0 at the
// end, or -1 and errno.
ssize_t read_some(int descriptor, std::vector<char>& block) {
  for (;;) {
    const ssize_t count = ::read(descriptor, block.data(), block.size());
    if (count >= 0) return count;
    if (errno == EAGAIN && !is_ready(descriptor, POLLIN)) errno = ETIMEDOUT;
    if (errno != EAGAIN && errno != EINTR) return -1;
  }
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return failed(cannot_read(path, errno));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return failed(cannot_read(path, errno));
  if (S_ISDIR(info.st_mode)) return failed(cannot_read(path, EISDIR));
  std::string text;
  std::vector<char> block(1u << 16u);
  while (text.size() <= max_bytes) {
    const ssize_t count = read_some(file.get(), block);
    if (count < 0) return failed(cannot_read(path, errno));
    if (count == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(count));
  }
  return failed(Status(
      Code::kInvalidArgument,
      fmt::format("{}: larger than {} MiB: not a file of lockstep's", path, max_bytes >> 20u)));
}

Result<FoundWith> read_found_with(const std::string& path) {
  Result<std::string> text = read_file(path, kMaxCaseBytes);
  if (!text) return failed(std::move(text.error()));
  return found_with_of(*text, path);
}

Result<Case> read_case(const std::string& path, std::string* about,
                       std::vector<std::string>* rewritten) {
  Result<std::string> text = read_file(path, kMaxCaseBytes);
  if (!text) return failed(std::move(text.error()));
  return from_json(*text, path, about, rewritten);
}

}  // namespace lockstep::properties
