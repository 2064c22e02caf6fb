// Claims: a shortage of the lane's resources is reported before the lane runs, with what to do; a
// machine with the resources passes. Controls: the same needs without the shortage. Each shortage
// exists in a child process only, because lowered limits cannot be raised again.
#include "properties/lane/needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <functional>

#include "properties/process/child.h"

namespace lockstep::properties {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Needs small() {
  Needs needs;
  needs.who = "the test";
  needs.descriptors = 100;
  needs.threads = 4;
  needs.address_bytes = std::uint64_t{1} << 30;
  needs.file_bytes = 8192;
  needs.own_program = true;
  return needs;
}

// Returns the error text after `shortage`.
std::string told_after(const std::function<void()>& shortage, const Needs& needs = small()) {
  Child child;
  EXPECT_TRUE(child
                  .start([&](ChildLine& line) {
                    shortage();
                    const Status status = check_needs(needs);
                    line.send(status.ok() ? "enough" : status.failure().detail);
                  })
                  .ok());
  std::string text;
  EXPECT_EQ(child.receive(text, std::chrono::seconds(60)), Child::Received::kMessage);
  return text;
}

void limit(decltype(RLIMIT_NOFILE) what, rlim_t soft, rlim_t hard) {
  const rlimit value{soft, hard};
  if (::setrlimit(what, &value) != 0) ::abort();
}

TEST(Needs, AreThereOnAUsualMachine) {
  EXPECT_EQ(told_after([] {}), "enough");
}

TEST(Needs, OfDescriptorsAreTold) {
  EXPECT_THAT(told_after([] { limit(RLIMIT_NOFILE, 20, 20); }),
              AllOf(HasSubstr("the test needs 100 open files"), HasSubstr("ulimit -n")));
}

TEST(Needs, OfDescriptorsAreMetByTheHardLimit) {
  EXPECT_EQ(told_after([] { limit(RLIMIT_NOFILE, 20, 400); }), "enough");
}

TEST(Needs, OfAddressSpaceAreTold) {
  constexpr rlim_t kBytes = rlim_t{300} << 20;
  EXPECT_THAT(told_after([] { limit(RLIMIT_AS, kBytes, kBytes); }),
              AllOf(HasSubstr("1024 MiB of address space"), HasSubstr("ulimit -v")));
}

TEST(Needs, OfAFolderAreTold) {
  EXPECT_THAT(told_after([] { ::setenv("TMPDIR", "/no/such/folder", 1); }),
              AllOf(HasSubstr("/no/such/folder"), HasSubstr("No such file"), HasSubstr("TMPDIR")));
}

TEST(Needs, OfSharedMemoryAreTold) {
  Needs needs = small();
  needs.shared_bytes = std::uint64_t{1} << 60;
  EXPECT_THAT(told_after([] {}, needs), AllOf(HasSubstr("/dev/shm"), HasSubstr("--shm-size")));
}

TEST(Needs, OfTheNcclLaneAreWhatItsCommunicatorsTake) {
  EXPECT_GE(needs_of(LaneKind::kNccl, Subject(), 1).shared_bytes, std::uint64_t{98} << 20);
  EXPECT_EQ(needs_of(LaneKind::kGloo, Subject(), 1).shared_bytes, 0u);
  EXPECT_EQ(needs_of(LaneKind::kSim, Subject(), 1).file_bytes, 0u);
}

TEST(Needs, ErrorsOfTheSystemSayWhatToDo) {
  const auto told = [](int error) { return refused_by_system("it", error).failure().detail; };
  EXPECT_THAT(told(EMFILE), HasSubstr("ulimit -n"));
  EXPECT_THAT(told(EAGAIN), HasSubstr("ulimit -u"));
  EXPECT_THAT(told(ENOSPC), HasSubstr("TMPDIR"));
  EXPECT_THAT(told(ENOMEM), HasSubstr("ulimit -v"));
}

}  // namespace
}  // namespace lockstep::properties
