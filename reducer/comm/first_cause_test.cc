#include "reducer/comm/first_cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

Status failure_of(const std::string& detail) { return Status(Code::kTransport, detail); }

TEST(FirstCause, StaysWhateverFollows) {
  FirstCause cause;
  EXPECT_TRUE(cause.ok());
  EXPECT_TRUE(cause.set(failure_of("first")));
  EXPECT_FALSE(cause.set(failure_of("second")));
  EXPECT_FALSE(cause.ok());
  EXPECT_EQ(cause.status().failure().detail, "first");
  EXPECT_THAT(cause.status().failure().later, ElementsAre(failure_of("second").to_string()));
}

TEST(FirstCause, AttachesALineOnce) {
  FirstCause cause;
  EXPECT_TRUE(cause.set(failure_of("first")));
  cause.attach(cause.status().to_string());
  cause.attach("a line");
  cause.attach("a line");
  EXPECT_THAT(cause.status().failure().later, ElementsAre("a line"));
}

TEST(FirstCause, KeepsFewLinesButWhatEverybodyMustRead) {
  FirstCause cause;
  EXPECT_TRUE(cause.set(failure_of("first")));
  for (int i = 0; i < 100; ++i) cause.attach("line " + std::to_string(i));
  const std::size_t few = cause.status().failure().later.size();
  EXPECT_LT(few, 20u);
  cause.append("must be read");
  EXPECT_EQ(cause.status().failure().later.size(), few + 1);
  EXPECT_EQ(cause.status().failure().later.back(), "must be read");
}

TEST(FirstCause, IsReplacedWithTheLinesThatCameMeanwhile) {
  FirstCause cause;
  EXPECT_TRUE(cause.set(failure_of("own")));
  cause.attach("before");
  Status of_peer = failure_of("of a peer");
  of_peer.failure().later = {"from the peer"};
  cause.attach("meanwhile");
  cause.replace(of_peer, 1);
  EXPECT_EQ(cause.status().failure().detail, "of a peer");
  EXPECT_THAT(cause.status().failure().later, ElementsAre("from the peer", "meanwhile"));
}

}  // namespace
}  // namespace lockstep
