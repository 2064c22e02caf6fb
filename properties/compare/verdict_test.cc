#include "properties/compare/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kLimit = 0.02;

TimedResult sum(const std::string& name, double ms, std::uint64_t wrong = 0) {
  TimedResult out;
  out.name = name;
  for (int round = 0; round < 12; ++round) out.rounds_ms.push_back({ms, ms * (1 + 0.001 * round)});
  out.is_sum = true;
  out.elements = 100;
  out.wrong = wrong;
  return out;
}

FaultResult fault(const std::string& name, const std::string& code) {
  return {name, {{{0, code, "text of NCCL", 12.5}, {1, code, "text of NCCL", 13.5}}}, 0};
}

LibraryResult library(const std::string& name) {
  LibraryResult out;
  out.name = name;
  out.version = name;
  out.times = {sum("all_reduce/float32/1 KiB", 1), sum("all_reduce/float32/16 KiB", 2),
               sum("all_reduce/float32/64 KiB", 3), sum("abort", 5)};
  out.messages = {{"all_reduce/float32/1 KiB", 12, 4096},
                  {"all_reduce/float32/64 KiB", 12, 262144}};
  out.faults = {fault("killed", "peer lost")};
  return out;
}

ComparisonResults two(const LibraryResult& a, const LibraryResult& b) {
  ComparisonResults out;
  out.commit = "abc";
  out.ran_on = "host side, device played";
  out.machine = {"a processor", 2, ""};
  out.ranks = 3;
  out.rounds = 12;
  out.repetitions = 2;
  out.libraries = {a, b};
  return out;
}

BitsDifference bits(std::uint64_t bytes, const std::string& size) {
  return {"all_reduce/float32/" + size, "float32", bytes, "2.29.7", "2.30.7", 100, 7, 3};
}

TEST(CompareVerdict, TheLineNamesBitsFromTheSizeOnAtWhichTheyDiffer) {
  ComparisonResults results = two(library("2.29.7"), library("2.30.7"));
  results.differences = {bits(65536, "64 KiB")};
  EXPECT_EQ(compare(results, 0, 1, kLimit).line(3),
            "2.29.7 -> 2.30.7: bits of float32 sums at 3 ranks differ above 16 KiB; nothing slower "
            "than 2 %");
  results.differences = {bits(16384, "16 KiB")};
  EXPECT_THAT(compare(results, 0, 1, kLimit).line(3), HasSubstr("differ at 16 KiB;"));
  results.differences = {bits(1024, "1 KiB"), bits(16384, "16 KiB"), bits(65536, "64 KiB")};
  EXPECT_THAT(compare(results, 0, 1, kLimit).line(3), HasSubstr("differ at all sizes;"));
}

TEST(CompareVerdict, NothingIsFoundWhereNothingDiffers) {
  const PairVerdict pair = compare(two(library("2.29.7"), library("2.30.7")), 0, 1, kLimit);
  EXPECT_FALSE(pair.is_different());
  EXPECT_EQ(pair.line(3), "2.29.7 -> 2.30.7: all bits agree; nothing slower than 2 %");
}

TEST(CompareVerdict, EveryKindOfDifferenceIsNamed) {
  LibraryResult other = library("2.30.7");
  other.times[3] = sum("abort", 50);
  other.times[1] = sum("all_reduce/float32/16 KiB", 2, 9);
  other.faults = {fault("killed", "timeout")};
  other.messages[1].messages = 24;
  other.lacks = {"ncclCommShrink"};
  other.problems = {"abort: rank 0: it did not answer within 120 s"};
  const PairVerdict pair = compare(two(library("2.29.7"), other), 0, 1, kLimit);
  EXPECT_TRUE(pair.is_different());
  const std::string line = pair.line(3);
  EXPECT_THAT(line, HasSubstr("slower by more than 2 %: abort (10.00 times)"));
  EXPECT_THAT(line, HasSubstr("what is told of killed differs (peer lost -> timeout)"));
  EXPECT_THAT(line, HasSubstr("; messages differ: all_reduce/float32/64 KiB: 12 (262144 B in all) "
                              "-> 24 (262144 B in all);"));
  EXPECT_THAT(line, HasSubstr("2.30.7 lacks ncclCommShrink"));
  EXPECT_THAT(line, HasSubstr("only in 2.30.7: abort: rank 0: it did not answer within 120 s"));
  EXPECT_THAT(line, HasSubstr("elements that are not as declared: 0 -> 9"));
}

TEST(CompareVerdict, NoiseIsNotCalledEqual) {
  LibraryResult a = library("2.29.7");
  LibraryResult b = library("2.30.7");
  for (std::size_t round = 0; round < 12; ++round)
    b.times[3].rounds_ms[round] = {round % 2 == 0 ? 3.0 : 9.0};
  const std::string line = compare(two(a, b), 0, 1, kLimit).line(3);
  EXPECT_THAT(line, HasSubstr("nothing found slower than 2 % (1 of 4 intervals are too wide"));
}

TEST(CompareVerdict, ATimeThatOneLibraryLacksIsShownAndNotJudged) {
  LibraryResult other = library("2.30.7");
  other.times.push_back(sum("shrink", 4));
  const ComparisonResults results = two(library("2.29.7"), other);
  const PairVerdict pair = compare(results, 0, 1, kLimit);
  ASSERT_EQ(pair.times.size(), 5);
  EXPECT_FALSE(pair.times.back().has_base);
  EXPECT_FALSE(pair.times.back().is_judged);
  EXPECT_THAT(to_text(results, kLimit), HasSubstr("\nshrink "));
  EXPECT_THAT(to_text(results, kLimit),
              HasSubstr("2.30.7: messages of one operation, all ranks: all_reduce/float32/1 KiB 12 "
                        "(4096 B in all), all_reduce/float32/64 KiB 12 (262144 B in all)\n"));
  EXPECT_THAT(to_text(results, kLimit), HasSubstr("host side, device played"));
}

TEST(CompareVerdict, ResultsAreTheSameAfterAFile) {
  ComparisonResults results = two(library("2.29.7"), library("2.30.7"));
  results.differences = {bits(65536, "64 KiB")};
  results.libraries[0].bits = {{"all_reduce/float32/1 KiB", "00ff", "NCCL's ring"}};
  results.libraries[1].lacks = {"ncclCommShrink"};
  results.libraries[1].problems = {"abort: it did not end"};
  const std::string text = to_json(results);
  const auto read = results_from_json(text);
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(to_json(*read), text);
  EXPECT_EQ(to_text(*read, kLimit), to_text(results, kLimit));
  EXPECT_EQ(read->machine, results.machine);
}

TEST(CompareVerdict, FilesThatAreNotWholeAreRefusedInOneLine) {
  const std::string text = to_json(two(library("2.29.7"), library("2.30.7")));
  const auto problem = [](const std::string& file) {
    const auto read = results_from_json(file);
    return read ? std::string("none") : read.error().failure().detail;
  };
  EXPECT_EQ(problem(text), "none");
  EXPECT_THAT(problem(""), HasSubstr("it is empty"));
  EXPECT_THAT(problem("{}"), HasSubstr("no results of ci/bench nccl"));
  // Wherever it is torn off, it is refused, in one line; behind its last bracket there is a
  // newline.
  for (std::size_t size = 1; size + 2 < text.size(); size += 7) {
    EXPECT_THAT(problem(text.substr(0, size)), HasSubstr("no whole JSON file"));
    EXPECT_THAT(problem(text.substr(0, size)), Not(HasSubstr("\n")));
  }
  std::string other = text;
  other.replace(other.find("\"schema\": 1"), 11, "\"schema\": 9");
  EXPECT_THAT(problem(other), HasSubstr("schema 9"));
  other = text;
  other.replace(other.find("\"ran_on\""), 8, "\"ran_in\"");
  EXPECT_THAT(problem(other), HasSubstr("a field is missing or wrong"));
}

}  // namespace
}  // namespace lockstep::properties
