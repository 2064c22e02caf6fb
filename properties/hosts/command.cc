#include "properties/hosts/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "properties/process/process_end.h"

extern char** environ;

namespace lockstep::properties::hosts {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);
constexpr std::size_t kMostOutput = std::size_t{4} << 20;

// A file without a name, which a program's standard streams can be.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& text) : fd_(::memfd_create("lockstep", MFD_CLOEXEC)) {
    std::string_view rest = text;
    while (fd_ >= 0 && !rest.empty()) {
      const ssize_t written = ::write(fd_, rest.data(), rest.size());
      if (written <= 0) break;
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
    if (fd_ >= 0) ::lseek(fd_, 0, SEEK_SET);
  }
  ~MemoryFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }
  std::string text() const {
    std::string out;
    std::array<char, 4096> part;
    while (out.size() < kMostOutput) {
      const ssize_t got = ::pread(fd_, part.data(), part.size(), static_cast<off_t>(out.size()));
      if (got <= 0) break;
      out.append(part.data(), static_cast<std::size_t>(got));
    }
    return out;
  }

 private:
  int fd_;
};

Status complaint(const std::vector<std::string>& arguments, const std::string& what) {
  return {Code::kTransport,
          fmt::format("{} {}: {}", arguments[0], arguments.size() > 1 ? arguments[1] : "", what)};
}

}  // namespace

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string folders = fmt::format("{}:/usr/sbin:/sbin", path == nullptr ? "" : path);
  while (!folders.empty()) {
    const std::size_t colon = std::min(folders.find(':'), folders.size() - 1);
    const std::string folder = folders.substr(0, folders[colon] == ':' ? colon : colon + 1);
    folders.erase(0, colon + 1);
    const std::string file = folder + "/" + name;
    if (!folder.empty() && ::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

Result<std::string> run_command(const std::vector<std::string>& arguments,
                                const std::string& input) {
  const std::string program = find_program(arguments[0]);
  if (program.empty())
    return failed(Status(
        Code::kInvalidArgument,
        fmt::format("there is no program {} here: ci/setup --network installs it", arguments[0])));
  const MemoryFile in(input);
  const MemoryFile out("");
  const MemoryFile error("");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in.fd(), 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.fd(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, error.fd(), 2);
  std::vector<std::string> copies = arguments;
  std::vector<char*> pointers;
  for (std::string& each : copies) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  pid_t pid = -1;
  const int refused =
      ::posix_spawn(&pid, program.c_str(), &actions, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (refused != 0) return failed(complaint(arguments, std::strerror(refused)));
  const std::optional<int> status = end_within(pid, kLimit);
  if (!status)
    return failed(complaint(arguments, fmt::format("it did not end within {} s", kLimit.count())));
  if (*status == 0) return out.text();
  const std::string text = error.text();
  const std::string line = text.substr(0, text.find('\n'));
  return failed(complaint(arguments, line.empty() ? describe_end(*status) : line));
}

}  // namespace lockstep::properties::hosts
