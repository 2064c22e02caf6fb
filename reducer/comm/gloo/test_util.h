// Helpers for the tests of this folder: temporary directories, and ranks as processes.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::testing {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = ::testing::TempDir() + "lockstep-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) abort();
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Child processes, one for each rank. A child's body returns its exit status; gtest's expectations
// that fail in it are printed and make the status 1. Make them before this process has any thread.
class Processes {
 public:
  static constexpr int kKilled = -1;
  static constexpr int kAbsent = -2;

  Processes(int size, const std::function<int(int)>& body) {
    for (int rank = 0; rank < size; ++rank) {
      const pid_t parent = ::getpid();
      const pid_t child = ::fork();
      if (child < 0) {
        ADD_FAILURE() << "fork: " << std::strerror(errno);
        return;
      }
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // The child does not outlive a test that is stopped.
        if (::getppid() != parent) ::_exit(2);
        const int status = body(rank);
        ::_exit(::testing::Test::HasFailure() ? 1 : status);
      }
      children_.push_back(child);
    }
  }
  ~Processes() {
    for (int rank = 0; rank < static_cast<int>(children_.size()); ++rank) {
      if (children_[static_cast<std::size_t>(rank)] < 0) continue;
      signal(rank, SIGKILL);
      wait(rank);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // A child that does not exist gets no signal: kill(-1) would reach every process of the machine.
  void signal(int rank, int number) {
    const auto index = static_cast<std::size_t>(rank);
    if (index < children_.size() && children_[index] > 0) ::kill(children_[index], number);
  }

  // Returns the exit status, or kKilled, or kAbsent for a child that never existed or was waited
  // for already.
  int wait(int rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (index >= children_.size() || children_[index] <= 0) return kAbsent;
    pid_t& child = children_[index];
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    child = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : kKilled;
  }

 private:
  std::vector<pid_t> children_;
};

inline void pause_for(std::chrono::milliseconds span) { std::this_thread::sleep_for(span); }

}  // namespace lockstep::testing
