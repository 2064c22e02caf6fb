#include "properties/campaign/part_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "properties/case/case_json.h"
#include "properties/case/invalid.h"
#include "properties/process/terminal.h"

namespace lockstep::properties {
namespace {

constexpr std::size_t kMaxLogBytes = std::size_t{4} << 30u;
constexpr const char* kPrefix = "part-";

Status cannot(const char* what, const std::string& path, int error) {
  const char* advice = "give another folder with --campaign";
  if (error == ENOSPC || error == EDQUOT)
    advice = "free some space, and start the part again: it goes on where it was";
  if (error == ENOLCK || error == ENOTSUP || error == ENOSYS)
    advice = "give a folder of a file system that has locks";
  return invalid(fmt::format("cannot {} {}: {}; {}", what, path, std::strerror(error), advice));
}

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

// What the process that has the lock wrote into the file: its host and number.
std::string holder_of(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t bytes = ::pread(descriptor, text.data(), text.size() - 1, 0);
  return bytes > 0 ? std::string(text.data(), static_cast<std::size_t>(bytes)) : "";
}

}  // namespace

std::string part_folder(const std::string& campaign, std::uint64_t part) {
  return fmt::format("{}/{}{:04}", campaign, kPrefix, part);
}

std::string part_log_file(const std::string& campaign, std::uint64_t part) {
  return part_folder(campaign, part) + "/log.jsonl";
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

PartFiles::~PartFiles() {
  if (log_ >= 0) ::close(log_);
  if (lock_ >= 0) ::close(lock_);
}

Status PartFiles::open(const std::string& campaign, const CampaignPart& part,
                       int patience_seconds) {
  folder_ = part_folder(campaign, part.number);
  path_ = part_log_file(campaign, part.number);
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return cannot("make the folder", folder_, error.value());
  LOCKSTEP_RETURN_IF_ERROR(lock(part, patience_seconds));
  log_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log_ < 0) return cannot("open", path_, errno);
  return read(part);
}

Status PartFiles::lock(const CampaignPart& part, int patience_seconds) {
  const std::string path = folder_ + "/lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) return cannot("open", path, errno);
  const std::string host = host_name();
  for (int waited = 0;; ++waited) {
    struct flock wanted = whole_file(F_WRLCK);
    if (::fcntl(lock_, F_SETLK, &wanted) == 0) break;
    if (errno != EAGAIN && errno != EACCES) return cannot("lock", path, errno);
    const std::string holder = holder_of(lock_);
    const bool is_here = holder.empty() || holder.starts_with(host + " ");
    if (is_here || waited >= patience_seconds)
      return invalid(fmt::format("part {} runs already ({}): each number can run once at a time",
                                 part.to_string(), holder.empty() ? "it has the lock" : holder));
    if (waited == 0)
      remark(fmt::format("part {} runs on another machine ({}); waiting for its end",
                         part.to_string(), holder));
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  // On a full disk the lock has no name in it, and is a lock all the same.
  const std::string text = fmt::format("{} process {}", host, ::getpid());
  (void)!::ftruncate(lock_, 0);
  (void)!::pwrite(lock_, text.data(), text.size(), 0);
  return {};
}

Status PartFiles::read(const CampaignPart& part) {
  const Result<std::string> text = read_file(path_, kMaxLogBytes);
  if (!text) return text.error();
  std::size_t whole = 0;
  Result<PartHistory> history = history_of(*text, path_, whole);
  if (!history) return history.error();
  bytes_ = whole;
  if (whole < text->size() && ::ftruncate(log_, static_cast<off_t>(whole)) != 0)
    return cannot("write to", path_, errno);
  if (whole == 0) {
    history->part = part;
    LOCKSTEP_RETURN_IF_ERROR(append(to_line(part)));
  }
  history_ = std::move(*history);
  const CampaignPart& theirs = history_.part;
  if (theirs.number != part.number || theirs.count != part.count)
    return invalid(fmt::format("{} is the log of part {}, and not of {}: move it back to its place",
                               path_, theirs.to_string(), part.to_string()));
  return {};
}

Status PartFiles::append(const std::string& line) {
  std::string_view left = line;
  while (!left.empty()) {
    const ssize_t written = ::write(log_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written < 0 ? errno : EIO;
      (void)!::ftruncate(log_, static_cast<off_t>(bytes_));  // else the next start drops the line
      return cannot("write to", path_, error);
    }
    left.remove_prefix(static_cast<std::size_t>(written));
  }
  bytes_ += line.size();
  return {};
}

Status PartFiles::sync() {
  return ::fdatasync(log_) == 0 ? Status() : cannot("write to", path_, errno);
}

bool is_running(const std::string& campaign, std::uint64_t part) {
  const std::string path = part_folder(campaign, part) + "/lock";
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return false;
  struct flock wanted = whole_file(F_WRLCK);
  const bool is_known = ::fcntl(descriptor, F_GETLK, &wanted) == 0;
  ::close(descriptor);
  return is_known && wanted.l_type != F_UNLCK;
}

Result<std::vector<PartHistory>> read_parts(const std::string& campaign) {
  std::vector<std::string> logs;
  std::error_code error;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(campaign, error)) {
    const std::string log = entry.path().string() + "/log.jsonl";
    if (entry.path().filename().string().starts_with(kPrefix) &&
        std::filesystem::exists(log, missing))
      logs.push_back(log);
  }
  if (error) return failed(cannot("read the folder", campaign, error.value()));
  std::vector<PartHistory> parts;
  for (const std::string& log : logs) {
    const Result<std::string> text = read_file(log, kMaxLogBytes);
    if (!text) return failed(text.error());
    std::size_t whole = 0;
    Result<PartHistory> history = history_of(*text, log, whole);
    if (!history) return failed(history.error());
    if (whole > 0) parts.push_back(std::move(*history));
  }
  std::sort(parts.begin(), parts.end(), [](const PartHistory& a, const PartHistory& b) {
    return a.part.number < b.part.number;
  });
  return parts;
}

}  // namespace lockstep::properties
