// Claims: a dump of PyTorch's recorder is read as JSON and as a pickle; a pickle that could run
// code is refused; and each sentence of the text follows from the records, however these are cut.
#include "properties/report/torch_flight_records.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "properties/report/pickle.h"

namespace lockstep::properties {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using namespace std::string_view_literals;

std::string dump_of(const std::vector<std::string>& states, const std::string& size = "100") {
  std::string out = R"({"version": "2.4", "pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": [)";
  for (std::size_t i = 0; i < states.size(); ++i)
    out += fmt::format(R"({}{{"pg_id": 0, "process_group": ["0", "default_pg"],
        "collective_seq_id": {}, "profiling_name": "nccl:all_reduce", "input_sizes": [[{}]],
        "input_dtypes": ["Float"], "output_sizes": [[{}]], "is_p2p": false, "state": "{}"}})",
                       i == 0 ? "" : ",", i + 1, i + 1 == states.size() ? size : "100",
                       i + 1 == states.size() ? size : "100", states[i]);
  return out + "]}";
}

TorchDiagnosis diagnosis_of(const std::vector<std::pair<std::string, std::string>>& files) {
  std::vector<TorchGroupRecord> records;
  for (const auto& [file, text] : files) {
    const auto read = read_torch_flight_record(text, file);
    EXPECT_TRUE(read) << read.error().to_string();
    if (read) records.insert(records.end(), read->begin(), read->end());
  }
  return join_torch_flight_records(std::move(records));
}

TEST(TorchFlightRecords, TheFirstDifferenceAndWhatHasNotEndedAreTold) {
  const TorchDiagnosis found =
      diagnosis_of({{"dumps/trace_0", dump_of({"completed", "scheduled"}, "25")},
                    {"dumps/trace_1", dump_of({"completed", "scheduled"}, "1")}});
  EXPECT_FALSE(found.is_clean);
  EXPECT_EQ(found.text,
            "process group 0 (default_pg), records of ranks 0 1:\n"
            "  the first difference that the records show is in collective 2:\n"
            "    rank 1: all_reduce of [1] Float\n"
            "    rank 0: all_reduce of [25] Float\n"
            "  rank 1: in collective 2 (all_reduce of [1] Float), which is scheduled\n"
            "  rank 0: in collective 2 (all_reduce of [25] Float), which is scheduled\n");
}

TEST(TorchFlightRecords, WhatHasEndedEverywhereIsClean) {
  const TorchDiagnosis found = diagnosis_of({{"trace_0", dump_of({"completed", "completed"})},
                                             {"trace_1", dump_of({"completed", "completed"})}});
  EXPECT_TRUE(found.is_clean) << found.text;
}

TEST(TorchFlightRecords, ARankWithoutARecordIsNotJudged) {
  const TorchDiagnosis found = diagnosis_of({{"trace_0", dump_of({"completed", "started"})}});
  EXPECT_FALSE(found.is_clean);
  EXPECT_THAT(found.text, HasSubstr("of rank 1 there is no record here: nobody can tell"));
}

TEST(TorchFlightRecords, WhatIsNoDumpIsRefusedInOneSentence) {
  for (const auto& [file, text, why] :
       {std::tuple("trace_0", "{", "no flight record"),
        std::tuple("trace_0", R"({"entries": 1})", "no flight record"),
        std::tuple("trace_0", R"({"entries": [1]})", "an entry cannot be read"),
        std::tuple("trace_0", R"({"entries": [{}]})", "an entry cannot be read"),
        std::tuple("trace", R"({"entries": []})", "end its name with the rank's number"),
        std::tuple("trace_99999999999", R"({"entries": []})", "end its name")}) {
    const auto read = read_torch_flight_record(text, file);
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().failure().detail, HasSubstr(why));
    EXPECT_THAT(read.error().failure().detail, Not(HasSubstr("\n")));
  }
}

// The ranks run the same collectives, but for one of one rank; each record begins and ends
// somewhere.
RC_GTEST_PROP(TorchFlightRecords, EachSentenceFollowsFromTheRecords, ()) {
  const int ranks = *rc::gen::inRange(2, 6);
  const int odd = *rc::gen::inRange(0, ranks);
  const std::int64_t odd_at = *rc::gen::inRange(0, 24);  // 0: none
  std::vector<TorchGroupRecord> records;
  for (int rank = 0; rank < ranks; ++rank) {
    TorchGroupRecord record;
    record.rank = rank;
    record.group = "0";
    const std::int64_t first = *rc::gen::inRange(1, 12);
    const std::int64_t last = first + *rc::gen::inRange(0, 12);
    for (std::int64_t sequence = first; sequence <= last; ++sequence)
      record.collectives.push_back({sequence, rank == odd && sequence == odd_at ? "other" : "same",
                                    sequence == last ? "started" : "completed"});
    records.push_back(std::move(record));
  }
  std::int64_t begin = 0;
  std::int64_t end = 1'000;
  for (const TorchGroupRecord& each : records) {
    begin = std::max(begin, each.collectives.front().sequence);
    end = std::min(end, each.collectives.back().sequence);
  }
  const std::string text = join_torch_flight_records(records).text;
  const auto says = [&](const std::string& what) { return text.find(what) != std::string::npos; };
  RC_ASSERT(says("nobody can tell where they first differ") == (begin > end));
  const bool differs = begin <= odd_at && odd_at <= end;
  RC_ASSERT(says("the first difference") == differs);
  RC_ASSERT(says(fmt::format("is in collective {}:\n    rank {}: other\n", odd_at, odd)) ==
            differs);
  RC_ASSERT(says("are the same") == (begin <= end && !differs));
  std::vector<int> ahead;
  for (const TorchGroupRecord& each : records) {
    if (each.collectives.back().sequence > end) ahead.push_back(each.rank);
    RC_ASSERT(says(fmt::format("in collective {} (", each.collectives.back().sequence)));
  }
  RC_ASSERT(says("went on") == !ahead.empty());
  RC_ASSERT(!says("suspect"));
}

// {"a": [1, -5, 2**40, 1.5, None, True, ("x", "x")]} of the protocols 2 and 4.
const std::string kProtocol2(
    "\x80\x02}q\x00X\x01\x00\x00\x00"
    "aq\x01]q\x02(K\x01J\xfb\xff\xff\xff\x8a\x06\x00\x00\x00\x00\x00\x01"
    "G?\xf8\x00\x00\x00\x00\x00\x00N\x88X\x01\x00\x00\x00xq\x03h\x03\x86q\x04"
    "es."sv);

TEST(Pickle, PlainDataIsRead) {
  const Result<Json> read = json_of_pickle(kProtocol2);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(*read, Json::parse(R"({"a": [1, -5, 1099511627776, 1.5, null, true, ["x", "x"]]})"));
}

// print("ran") in Python: a function of its library, and a call.
TEST(Pickle, WhatCouldRunCodeIsRefused) {
  const std::string call(
      "\x80\x02"
      "c__builtin__\nprint\nX\x03\x00\x00\x00ran\x85R."sv);
  const Result<Json> read = json_of_pickle(call);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().failure().detail, HasSubstr("nothing of it was run"));
  for (const char instruction : std::string("cRibobBPQIV\x81\x82\x83\x84\x92\x93\x97\x98")) {
    const std::string one = std::string("\x80\x02", 2) + instruction;
    EXPECT_FALSE(json_of_pickle(one)) << instruction;
  }
}

TEST(Pickle, ATruncatedOrDamagedOneIsReadOrRefused) {
  for (std::size_t bytes = 0; bytes < kProtocol2.size(); ++bytes)
    EXPECT_FALSE(json_of_pickle(kProtocol2.substr(0, bytes))) << bytes;
}

RC_GTEST_PROP(Pickle, AnyBytesAreReadOrRefused, (const std::string& bytes)) {
  (void)json_of_pickle(std::string("\x80\x02", 2) + bytes);
  (void)json_of_pickle(bytes);
}

// A list that is put into itself, again and again, would be exponentially large.
TEST(Pickle, AListIsAtOnePlaceAlone) {
  EXPECT_FALSE(
      json_of_pickle(std::string("\x80\x02]q\x00h\x00"
                                 "a."sv)));
}

}  // namespace
}  // namespace lockstep::properties
