// A write to a pipe that nobody reads, with and without the block. The tests run in child
// processes, because without the block the signal ends the process.
#include "reducer/comm/gloo/sigpipe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "reducer/comm/gloo/test_util.h"

namespace lockstep {
namespace {

using lockstep::testing::Processes;

int write_to_nobody() {  // Returns the error, or 0.
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  ::close(ends[0]);
  const int error = ::write(ends[1], "x", 1) < 0 ? errno : 0;
  ::close(ends[1]);
  return error;
}

bool is_pending() {
  sigset_t pending;
  ::sigemptyset(&pending);
  ::sigpending(&pending);
  return ::sigismember(&pending, SIGPIPE) == 1;
}

TEST(WithoutSigpipe, AWriteToAClosedPipeIsAnError) {
  Processes child(1, [](int) {
    {
      const WithoutSigpipe outer;
      const WithoutSigpipe inner;
      EXPECT_EQ(write_to_nobody(), EPIPE);
    }
    EXPECT_FALSE(is_pending());
    return 0;
  });
  EXPECT_EQ(child.wait(0), 0);
}

TEST(WithoutSigpipe, AfterwardsTheSignalComesAgain) {
  Processes child(1, [](int) {
    { const WithoutSigpipe guard; }
    return write_to_nobody() == EPIPE ? 0 : 1;
  });
  EXPECT_EQ(child.wait(0), Processes::kKilled);
}

TEST(WithoutSigpipe, ASignalThatWasPendingBeforeStaysPending) {
  Processes child(1, [](int) {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGPIPE);
    EXPECT_EQ(::pthread_sigmask(SIG_BLOCK, &set, nullptr), 0);
    EXPECT_EQ(::raise(SIGPIPE), 0);
    {
      const WithoutSigpipe guard;
      EXPECT_EQ(write_to_nobody(), EPIPE);
    }
    EXPECT_TRUE(is_pending());
    return 0;
  });
  EXPECT_EQ(child.wait(0), 0);
}

}  // namespace
}  // namespace lockstep
