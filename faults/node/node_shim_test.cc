// Programs of the system run with the library before all others: what they see of the wall clock,
// and what the library counts of what the system refuses to them. Each check has its opposite.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>
#include <string>

#include "faults/node/node_switches.h"

namespace lockstep::faults {
namespace {

constexpr std::int64_t kNanoseconds = 1'000'000'000;
constexpr std::int64_t kHour = 3600;

class NodeShim : public ::testing::Test {
 protected:
  void SetUp() override {
    fd_ = ::memfd_create("node-shim-test", MFD_CLOEXEC);
    ASSERT_GE(fd_, 0);
    ASSERT_EQ(::ftruncate(fd_, sizeof(NodeSwitches)), 0);
    void* const memory =
        ::mmap(nullptr, sizeof(NodeSwitches), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    ASSERT_NE(memory, MAP_FAILED);
    switches_ = new (memory) NodeSwitches();
  }
  ~NodeShim() override {
    if (switches_ != nullptr) ::munmap(switches_, sizeof(NodeSwitches));
    if (fd_ >= 0) ::close(fd_);
  }

  // Returns what a command of the shell printed that ran with the library.
  std::string run(const std::string& command) const {
    const std::string line =
        "LD_PRELOAD=" LOCKSTEP_NODE_SHIM " " + std::string(kNodeSwitchesVariable) + "=/proc/" +
        std::to_string(::getpid()) + "/fd/" + std::to_string(fd_) + " sh -c '" + command + "' 2>&1";
    std::FILE* const pipe = ::popen(line.c_str(), "r");
    if (pipe == nullptr) return "no process can be started";
    std::string text;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
    ::pclose(pipe);
    return text;
  }
  // How far the wall clock of such a process is ahead, in seconds.
  std::int64_t ahead() const {
    const std::int64_t seen = std::atoll(run("date +%s").c_str());
    return seen - static_cast<std::int64_t>(std::time(nullptr));
  }

  NodeSwitches* switches_ = nullptr;

 private:
  int fd_ = -1;
};

TEST_F(NodeShim, TheWallClockJumpsForwardAndBackAndItsReadsAreCounted) {
  EXPECT_LT(std::abs(ahead()), kHour / 2);
  EXPECT_EQ(switches_->clock_reads, 0u);
  for (const std::int64_t hours : {2, -2}) {
    switches_->clock_shift_ns = hours * kHour * kNanoseconds;
    switches_->clock_reads = 0;
    EXPECT_LT(std::abs(ahead() - hours * kHour), kHour / 2);
    EXPECT_GE(switches_->clock_reads, 1u);
  }
}

TEST_F(NodeShim, TheMonotonicClockStaysWhatItIs) {
  for (const std::int64_t hours : {0, 2, -2}) {
    switches_->clock_shift_ns = hours * kHour * kNanoseconds;
    EXPECT_EQ(run("timeout 0.1 sleep 30; echo $?"), "124\n");  // 124: the time was over
  }
}

TEST_F(NodeShim, RefusedDescriptorsAreCounted) {
  EXPECT_EQ(run(": < /dev/null && echo fine"), "fine\n");
  EXPECT_EQ(switches_->refused_descriptors, 0u);
  EXPECT_NE(run("ulimit -n 3; : < /dev/null && echo fine"), "fine\n");
  EXPECT_GE(switches_->refused_descriptors, 1u);
}

}  // namespace
}  // namespace lockstep::faults
