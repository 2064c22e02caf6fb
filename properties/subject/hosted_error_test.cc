// Claims: a failure survives the way into the C structure and back; what a subject gets wrong in an
// error is reported as its mistake, and reads no memory that is not there.
#include "properties/subject/hosted_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace lockstep::properties {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const HostedErrors& errors() {
  static const HostedErrors made({"p0", "p1", "p3"});
  return made;
}

Failure full_failure() {
  Failure failure;
  failure.code = Code::kReadyTwice;
  failure.rank = 2;
  failure.pass = 7;
  failure.bucket = 1;
  failure.sequence = 40;
  failure.suspect = 3;
  failure.definite = true;
  failure.collective = "broadcast";
  failure.parameters = {"p3", "p0"};
  failure.detail = "twice";
  return failure;
}

TEST(HostedErrors, EveryFieldGoesThereAndBack) {
  const lockstep_error c = errors().to_c(full_failure());
  const Failure back = errors().to_status(c.code, c, 1).failure();
  EXPECT_EQ(back.code, Code::kReadyTwice);
  EXPECT_EQ(back.rank, 2);
  EXPECT_EQ(back.reported_by, 1);
  EXPECT_EQ(back.pass, 7);
  EXPECT_EQ(back.bucket, 1);
  EXPECT_EQ(back.sequence, 40);
  EXPECT_EQ(back.suspect, 3);
  EXPECT_TRUE(back.definite);
  EXPECT_EQ(back.collective, "broadcast");
  EXPECT_THAT(back.parameters, ElementsAre("p3", "p0"));
  EXPECT_EQ(back.detail, "twice");
}

TEST(HostedErrors, EveryCodeGoesThereAndBack) {
  for (std::int32_t code = LOCKSTEP_INVALID_ARGUMENT; code <= LOCKSTEP_INTERNAL; ++code) {
    const Status status = errors().to_status(code, HostedErrors::nothing(0), 0);
    EXPECT_EQ(code_to_c(status.code()), code);
    EXPECT_EQ(status.failure().detail, "the subject gives no detail");
  }
}

TEST(HostedErrors, NothingKnownIsNothingKnown) {
  const Failure failure =
      errors().to_status(LOCKSTEP_TIMEOUT, HostedErrors::nothing(kNone), 0).failure();
  EXPECT_EQ(failure.rank, kNone);
  EXPECT_EQ(failure.pass, kNone);
  EXPECT_EQ(failure.bucket, kNone);
  EXPECT_EQ(failure.sequence, kNone);
  EXPECT_EQ(failure.suspect, kNone);
  EXPECT_FALSE(failure.definite);
  EXPECT_EQ(failure.collective, "");
  EXPECT_TRUE(failure.parameters.empty());
}

TEST(HostedErrors, OkIsOkWhateverTheErrorSays) {
  lockstep_error error = HostedErrors::nothing(0);
  error.code = LOCKSTEP_TIMEOUT;
  EXPECT_TRUE(errors().to_status(LOCKSTEP_OK, error, 0).ok());
}

TEST(HostedErrors, MistakesOfTheSubjectAreNamed) {
  lockstep_error error = HostedErrors::nothing(0);
  const auto detail = [&](std::int32_t code) {
    const Status status = errors().to_status(code, error, 0);
    EXPECT_EQ(status.code(), Code::kInternal);
    return status.failure().detail;
  };
  EXPECT_THAT(detail(77), HasSubstr("no error code 77"));
  EXPECT_THAT(detail(-1), HasSubstr("no error code -1"));
  error.parameter_count = 1;
  error.parameters[0] = 3;
  EXPECT_THAT(detail(LOCKSTEP_INCOMPLETE), HasSubstr("parameter 3 of 3"));
  error.parameter_count = LOCKSTEP_MAX_PARAMETERS + 1;
  EXPECT_THAT(detail(LOCKSTEP_INCOMPLETE), HasSubstr("names 65 parameters"));
}

TEST(HostedErrors, ADetailWithoutAnEndIsCut) {
  lockstep_error error = HostedErrors::nothing(0);
  std::memset(error.detail, 'x', sizeof error.detail);
  error.detail[3] = '\n';
  const std::string detail = errors().to_status(LOCKSTEP_TIMEOUT, error, 0).failure().detail;
  EXPECT_EQ(detail.size(), std::size_t{LOCKSTEP_DETAIL_BYTES});
  EXPECT_EQ(detail.substr(0, 5), "xxx x");
  Failure failure = full_failure();
  failure.detail.assign(1000, 'y');
  EXPECT_EQ(std::strlen(errors().to_c(failure).detail), std::size_t{LOCKSTEP_DETAIL_BYTES - 1});
}

}  // namespace
}  // namespace lockstep::properties
