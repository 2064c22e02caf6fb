#include "reducer/base/status.h"

#include <gtest/gtest.h>

#include <cstring>

namespace lockstep {
namespace {

Failure usual() {
  Failure failure;
  failure.code = Code::kIncomplete;
  failure.rank = failure.reported_by = 1;
  failure.pass = 7;
  failure.bucket = 2;
  failure.definite = true;
  failure.collective = "all_reduce";
  failure.detail = "what happened";
  failure.parameters = {"p", "q"};
  return failure;
}

TEST(Failure, F2_13ItsTextNamesSixteenParametersAndCountsTheRest) {
  Failure failure = usual();
  failure.parameters.clear();
  for (int i = 0; i < 100000; ++i) failure.parameters.push_back("layer." + std::to_string(i));
  const std::string text = failure.to_string();
  EXPECT_NE(text.find("layer.0 layer.1 "), std::string::npos) << text;
  EXPECT_NE(text.find(" layer.15 and 99984 more: what happened"), std::string::npos) << text;
  EXPECT_EQ(text.find("layer.16"), std::string::npos);
  EXPECT_EQ(failure.parameters.size(), 100000u);
}

TEST(Failure, ItsTextCutsNamesThatNobodyReads) {
  Failure failure = usual();
  failure.parameters = {std::string(1 << 20, 'n')};
  EXPECT_LT(failure.to_string().size(), 1000u);
  EXPECT_NE(failure.to_string().find("nnn...: what happened"), std::string::npos);
}

TEST(Failure, EncodedWithinALimitItFitsWhateverIsLongInIt) {
  const std::string many(3000, 'c');
  for (const std::size_t limit : {kLeastEncoded, std::size_t{1000}, std::size_t{100000}}) {
    for (const int which : {0, 1, 2, 3, 4}) {
      Failure failure = usual();
      if (which == 0 || which == 4) failure.collective = many;
      if (which == 1 || which == 4) failure.detail = many;
      if (which == 2 || which == 4) failure.parameters = {many, many};
      if (which == 3 || which == 4) failure.later = {many};
      const std::string bytes = encode(failure, limit);
      EXPECT_LE(bytes.size(), limit);
      const std::optional<Failure> back = read_failure(bytes);
      ASSERT_TRUE(back.has_value()) << which << " " << limit;
      EXPECT_EQ(back->code, Code::kIncomplete);
      EXPECT_EQ(back->pass, 7);
      EXPECT_FALSE(back->detail.empty());
    }
  }
}

TEST(Failure, ReadsWhatWasEncodedAndNothingElse) {
  const std::string bytes = encode(usual());
  const std::optional<Failure> back = read_failure(bytes, 2);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->to_string(), usual().to_string());
  EXPECT_FALSE(read_failure(bytes, 1).has_value());  // There is no rank 1.
  EXPECT_FALSE(read_failure(bytes.substr(0, bytes.size() - 1)).has_value());
  EXPECT_FALSE(read_failure("").has_value());
  EXPECT_FALSE(read_failure(std::string(1000, '\x7f')).has_value());
  EXPECT_EQ(decode_failure("nonsense").code, Code::kInternal);
}

TEST(Failure, NumbersThatNoFailureHasAreNotRead) {
  const auto is_read = [](const auto& change) {
    Failure failure = usual();
    change(failure);
    return read_failure(encode(failure), 4).has_value();
  };
  EXPECT_TRUE(is_read([](Failure& f) { f.rank = f.suspect = kNone; }));
  EXPECT_FALSE(is_read([](Failure& f) { f.rank = 1 << 30; }));
  EXPECT_FALSE(is_read([](Failure& f) { f.suspect = -77; }));
  EXPECT_FALSE(is_read([](Failure& f) { f.suspect = 4; }));
  EXPECT_FALSE(is_read([](Failure& f) { f.pass = -5; }));
  EXPECT_FALSE(is_read([](Failure& f) { f.bucket = -2; }));
  std::string bytes = encode(usual());
  const std::int64_t wide = (std::int64_t{1} << 32) + 1;  // Truncated to 32 bits it is rank 1.
  std::memcpy(bytes.data() + 16, &wide, sizeof wide);
  EXPECT_FALSE(read_failure(bytes, 4).has_value());
}

}  // namespace
}  // namespace lockstep
