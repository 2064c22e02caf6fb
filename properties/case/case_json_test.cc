#include "properties/case/case_json.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "properties/generate/random.h"
#include "properties/shrink/test_arbitrary.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

class CaseFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lockstep_case_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
  }
  std::size_t file_count() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  fs::path folder_;
};

// The message of a refusal. Every one is a single line and begins with the source.
std::string refusal(const std::string& text) {
  const Result<Case> result = from_json(text, "x.json");
  if (result) return "accepted";
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  const std::string detail = result.error().failure().detail;
  EXPECT_EQ(detail.find('\n'), std::string::npos) << detail;
  EXPECT_EQ(detail.rfind("x.json: ", 0), 0u) << detail;
  return detail.substr(std::min<std::size_t>(8, detail.size()));
}

Case minimal() {
  Case value;
  value.program.parameters.resize(2);
  value.program.steps.resize(2);
  value.program.steps[0].kind = reference::PassKind::kNoSync;
  value.program.steps[1].zero_grad = reference::ZeroGrad::kKeep;
  value.program.steps[1].variants.resize(1);
  value.program.steps[1].variants[0].forwards.resize(1);
  value.program.steps[1].variants[0].forwards[0].nodes.resize(1);
  value.program.steps[1].variants[0].forwards[0].nodes[0].parameter = 1;
  value.program.options.mode = reference::Mode::kDynamic;
  normalize(value);
  return value;
}

// Claim: what is written is read back, field by field. Method: any generated case. A failure means
// that a regression case changes by being saved. Replay: the case is printed.
RC_GTEST_PROP(CaseJson, RoundTripsEveryCase, (const Case& value)) {
  const Result<Case> back = from_json(to_json(value), "round trip");
  RC_ASSERT(back.has_value());
  RC_ASSERT(equal(*back, value));
}

TEST(CaseJson, KeepsHowACaseWasFound) {
  const FoundWith found{"./libmine.so", "sim", "", "lockstep", "exact", "2.19"};
  const std::string text = to_json(minimal(), "a note", found);
  const Result<FoundWith> back = found_with_of(text, "file");
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(*back, found);
  const Result<Case> c = from_json(text, "file");
  ASSERT_TRUE(c.has_value());
  EXPECT_TRUE(equal(*c, minimal())) << "the case is the same without it";
  EXPECT_EQ(*found_with_of(to_json(minimal()), "file"), FoundWith());
}

TEST(CaseJson, RefusesARecordOfHowItWasFoundThatIsNone) {
  for (const char* record : {"3", "{\"lane\": 3}", "{\"subjekt\": \"reducer\"}"}) {
    const std::string text = std::string("{\"schema\": 2, \"found_with\": ") + record + "}";
    EXPECT_FALSE(from_json(text, "file").has_value()) << record;
    EXPECT_FALSE(found_with_of(text, "file").has_value()) << record;
  }
}

TEST(CaseJson, AMinimalCaseIsAFewLines) {
  EXPECT_EQ(to_json(minimal()), R"({
 "schema": 4,
 "program": {
  "options": {"mode": "dynamic"},
  "parameters": [{}, {}],
  "steps": [
   {"kind": "no_sync", "variants": [{"forwards": [{"nodes": [{}], "outputs": [{}]}]}]},
   {
    "zero_grad": "keep",
    "variants": [{"forwards": [{"nodes": [{"parameter": 1}], "outputs": [{}]}]}]
   }
  ]
 }
}
)");
}

TEST(CaseJson, UpToSchema2TheOptionsOfPyTorchStandAmongThoseOfTheProgram) {
  const auto read = [](const std::string& schema, const std::string& rest) {
    return from_json(R"({"schema": )" + schema + ", " + rest + "}", "old.json");
  };
  const std::string options = R"("batched_grad_copy": true, "finalization": "never")";
  const std::string old_place = R"("program": {"options": {)" + options + "}}";
  const std::string new_place = R"("torch": {)" + options + "}";
  for (const auto& [schema, place] :
       {std::pair("1", old_place), {"2", old_place}, {"3", new_place}}) {
    const Result<Case> value = read(schema, place);
    ASSERT_TRUE(value) << schema << ": " << value.error().failure().detail;
    EXPECT_EQ(value->torch.finalization, TorchOptions::Finalization::kNever) << schema;
    EXPECT_TRUE(value->torch.batched_grad_copy) << schema;
  }
  EXPECT_FALSE(read("3", old_place));
  EXPECT_EQ(read("2", new_place).error().failure().detail,
            "old.json: torch: schema 2 has no such field; write \"schema\": 4, or leave it out");
}

TEST(CaseJson, UpToSchemaThreeADisagreementIsCalledAMisfit) {
  const auto read = [](const char* schema, const char* name) {
    return from_json(std::string(R"({"schema": )") + schema + R"(, "program": {")" + name +
                         R"(": {"kind": "views", "rank": 1}}})",
                     "by hand");
  };
  for (const char* schema : {"1", "2", "3"}) {
    const Result<Case> value = read(schema, "misfit");
    ASSERT_TRUE(value) << value.error().failure().detail;
    EXPECT_EQ(value->program.disagreement.kind, reference::disagreement_named("views"));
    EXPECT_EQ(value->program.disagreement.rank, 1u);
    EXPECT_FALSE(read(schema, "disagreement")) << schema;
  }
  EXPECT_FALSE(read("4", "misfit"));
  const Result<Case> value = read("4", "disagreement");
  ASSERT_TRUE(value) << value.error().failure().detail;
  EXPECT_NE(to_json(*value).find(R"("disagreement": {"kind": "views", "rank": 1})"),
            std::string::npos);
}

TEST(CaseJson, WhatRunsOtherwiseThanItIsWrittenIsNamed) {
  std::vector<std::string> rewritten;
  const auto read = [&](const std::string& field) {
    const std::string forward =
        R"({"forwards": [{)" + field + R"("nodes": [{}], "outputs": [{}]}]})";
    const std::string plain = R"({"forwards": [{"nodes": [{}], "outputs": [{}]}]})";
    return from_json(R"({"schema": 3, "program": {"world": 2, "parameters": [{}], "steps": [)"
                     R"({"variants": [)" +
                         plain + ", " + forward + "]}]}}",
                     "by hand", nullptr, &rewritten);
  };
  ASSERT_TRUE(read(""));
  EXPECT_EQ(rewritten, std::vector<std::string>{});
  ASSERT_TRUE(
      from_json(R"({"schema": 3, "program": {"world": 1, "steps": [{"variants": [{}, {}]}]}})",
                "by hand", nullptr, &rewritten));
  EXPECT_EQ(rewritten, std::vector<std::string>{"step 0: no rank takes variant 1"});
}

// A batch that one rank alone skips, drops, or does not synchronize: the rank is absent (P8).
// Another one beside it would leave nobody to miss both.
TEST(CaseJson, ARankThatTakesNoPartInAPassIsAbsent) {
  constexpr const char* kTrains = R"({"forwards": [{"nodes": [{}], "outputs": [{}]}]})";
  std::vector<std::string> rewritten;
  const auto read = [&](const std::vector<std::string>& variants) {
    return from_json(fmt::format(R"({{"schema": 4, "program": {{"world": {}, "parameters": [{{}}],
                                     "steps": [{{"variants": [{}]}}]}}}})",
                                 variants.size(), fmt::join(variants, ", ")),
                     "by hand", nullptr, &rewritten);
  };
  for (const std::string absent :
       {R"({"skip": true})", R"({"forwards": [{"discard": true}]})",
        R"({"forwards": [{"local": true, "nodes": [{}], "outputs": [{}]}]})",
        R"({"forwards": [{"discard": true}, {"local": true}]})", R"({"absent": true})"}) {
    const Result<Case> c = read({kTrains, absent});
    ASSERT_TRUE(c.has_value()) << absent;
    EXPECT_EQ(rewritten, std::vector<std::string>{}) << absent;
    EXPECT_FALSE(c->program.steps[0].variants[0].absent);
    EXPECT_TRUE(c->program.steps[0].variants[1].absent) << absent;
    const Result<Case> again = from_json(to_json(*c), "again", nullptr, &rewritten);
    EXPECT_TRUE(again.has_value() && equal(*again, *c)) << to_json(*c);
    EXPECT_EQ(rewritten, std::vector<std::string>{}) << absent;
  }
  const Result<Case> two = read({kTrains, R"({"skip": true})", R"({"skip": true})"});
  ASSERT_TRUE(two.has_value());
  EXPECT_TRUE(two->program.steps[0].variants[1].absent);
  EXPECT_EQ(rewritten, std::vector<std::string>{"step 0, rank 2: skip: true means nothing there"});
  const Result<Case> one_forward = read({kTrains, R"({"forwards": [{"discard": true}, {}]})"});
  ASSERT_TRUE(one_forward.has_value());
  EXPECT_FALSE(one_forward->program.steps[0].variants[1].absent);
}

TEST(CaseJson, TheClauseThatExcludesAnOptionIsNamed) {
  std::vector<std::string> rewritten;
  ASSERT_TRUE(from_json(R"({"schema": 3, "program": {"parameters": [{}], "options": {"views": true,
                            "own_group": true, "order": "bcube", "fabric": "nccl"}},
                            "environment": {"times": true, "latency_seed": 3, "late_peer": true}})",
                        "by hand", nullptr, &rewritten));
  EXPECT_EQ(rewritten,
            (std::vector<std::string>{R"(program.options.order: "bcube" means nothing there)",
                                      "program.options.own_group: true means nothing there (P14)",
                                      "environment.latency_seed: 3 means nothing there",
                                      "environment.late_peer: true means nothing there"}));
}

TEST(CaseJson, EverythingIsWrittenByName) {
  Case value = minimal();
  value.faults.faults = {{faults::Kind::kRankExit, 1, 1, 3, 0}};
  value.schedule.policy = Schedule::Policy::kRandomWalk;
  value.schedule.seed = 9;
  value.timeout_ms = 1500;
  const std::string text = to_json(value, "found by hand");
  for (const char* part :
       {R"("about": "found by hand")",
        R"("faults": [{"kind": "rank_exit", "rank": 1, "step": 1, "site": 3}])",
        R"("schedule": {"policy": "random_walk", "seed": 9})", R"("timeout_ms": 1500)"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  std::string about;
  ASSERT_TRUE(from_json(text, "x", &about).has_value());
  EXPECT_EQ(about, "found by hand");
}

TEST(CaseJson, SharedParametersAreWrittenWithoutWhatTheirOwnerSays) {
  Case value = minimal();
  value.program.parameters[0].sizes = {3, 4};
  value.program.parameters[1].shared_with = 1;
  normalize(value);
  const std::string text = to_json(value);
  EXPECT_NE(text.find(R"([{"sizes": [3, 4]}, {"shared_with": 1}])"), std::string::npos) << text;
  EXPECT_TRUE(equal(*from_json(text, "x"), value));
}

TEST(CaseJson, ALoadedCaseIsNormalized) {
  const auto loaded = from_json(R"({"schema": 1, "program": {"steps": [{}], "renewed": 7},
                                     "faults": [{"rank": 1000000001}]})",
                                "x");
  ASSERT_TRUE(loaded.has_value()) << loaded.error().failure().detail;
  EXPECT_EQ(loaded->program.recreate_before_step, 0u);
  EXPECT_EQ(loaded->faults.faults[0].rank, 1u);
  EXPECT_EQ(loaded->program.steps[0].variants.size(), 1u);
  EXPECT_EQ(loaded->program.parameters.size(), 1u);
}

TEST(CaseJson, RefusesWhatIsNotJson) {
  EXPECT_EQ(refusal(""), "the file is empty; give a case file written by lockstep");
  EXPECT_EQ(
      refusal("{\n \"schema\": 1,\n \"program\": {"),
      "not JSON: it ends too early, at line 3, column 14; the file is truncated, get a whole copy");
  EXPECT_EQ(refusal("{\n \"schema\" 1}"),
            "not JSON: unexpected text at line 2, column 11; correct it there");
  EXPECT_EQ(refusal(std::string(100, '[')), "nested deeper than 64 levels: not a case file");
  EXPECT_EQ(refusal("[]"), "not a case file: it should hold one object {...}");
  EXPECT_EQ(refusal(std::string(kMaxCaseBytes + 1, ' ')), "larger than 16 MiB: not a case file");
}

// The second value would win without a word.
TEST(CaseJson, RefusesAFieldThatIsThereTwice) {
  for (const auto& [text, name] :
       {std::pair(R"({"schema": 2, "schema": 2})", "schema"),
        std::pair(R"({"schema": 2, "program": {"world": 2, "key": 1, "world": 4}})", "world"),
        std::pair(
            R"({"schema": 2, "program": {"steps": [{}, {"kind": "local", "kind": "synced"}]}})",
            "kind")}) {
    const Result<Case> read = from_json(text, "a.json");
    ASSERT_FALSE(read.has_value()) << text;
    EXPECT_EQ(
        read.error().failure().detail,
        fmt::format("a.json: the field \"{}\" is there twice in one object; remove one", name));
  }
  // The same name in two objects is no repetition.
  EXPECT_TRUE(
      from_json(R"({"schema": 2, "program": {"steps": [{"kind": "synced"}, {"kind": "synced"}]}})",
                "a.json")
          .has_value());
}

TEST(CaseJson, RefusesOtherSchemas) {
  EXPECT_EQ(refusal("{}"),
            "no \"schema\" field: not a case file; a case written by hand needs \"schema\": 4");
  EXPECT_EQ(refusal(R"({"schema": 5, "novelty": 1})"),
            "written by a newer lockstep (schema 5, this build reads up to 4): update lockstep");
  EXPECT_EQ(refusal(R"({"schema": 0})"), "schema: expected a number from 1 to 4, found 0");
  EXPECT_EQ(refusal(R"({"schema": "1"})"), "schema: expected a number from 1 to 4, found \"1\"");
  EXPECT_EQ(refusal(R"({"schema": 1, "about": 3})"), "about: expected text in quotes, found 3");
}

TEST(CaseJson, NamesTheFieldOfAWrongType) {
  const auto program = [](const std::string& text) {
    return refusal(R"({"schema": 1, "program": {)" + text + "}}");
  };
  EXPECT_EQ(program(R"("key": "two")"),
            "program.key: expected a whole number from 0 to 4294967295, found \"two\"");
  EXPECT_EQ(program(R"("key": 2.5)"),
            "program.key: expected a whole number from 0 to 4294967295, found 2.5");
  EXPECT_EQ(program(R"("key": -1)"),
            "program.key: expected a whole number from 0 to 4294967295, found -1");
  EXPECT_EQ(program(R"("key": 4294967296)"),
            "program.key: expected a whole number from 0 to 4294967295, found 4294967296");
  EXPECT_EQ(program(R"("parameters": [{}, {"frozen": 1}])"),
            "program.parameters[1].frozen: expected true or false, found 1");
  EXPECT_EQ(program(R"("steps": {})"), "program.steps: expected a list [...], found an object");
  EXPECT_EQ(program(R"("steps": [3])"), "program.steps[0]: expected an object {...}, found 3");
  EXPECT_EQ(program(R"("values": 1)"),
            "program.values: expected one of exact, general, special, largest, found 1");
  EXPECT_EQ(program(R"("steps": [{"kind": "nosync"}])"),
            "program.steps[0].kind: unknown value \"nosync\"; did you mean \"no_sync\"?");
}

// Otherwise it would run with other numbers than the file has, without a warning.
TEST(CaseJson, ANumberOutsideOfItsLimitsIsRefusedWithTheLimits) {
  const auto program = [](const std::string& text) {
    return refusal(R"({"schema": 1, "program": {)" + text + "}}");
  };
  const std::string ranks = fmt::format("from 1 to {}", reference::kMaxWorld);
  for (const char* wrong : {"1000000000", "0", "-1"})
    EXPECT_EQ(program(fmt::format(R"("world": {})", wrong)),
              fmt::format("program.world: expected a whole number {}, found {}", ranks, wrong));
  EXPECT_EQ(program(fmt::format(R"("world": {})", reference::kMaxWorld)), "accepted");
  EXPECT_EQ(program(R"("parameters": [{"sizes": [2, 4097]}])"),
            "program.parameters[0].sizes[1]: expected a whole number from 0 to 4096, found 4097");
  EXPECT_EQ(program(R"("buffers": [{"sizes": [256, 257]}])"),
            "program.buffers[0].sizes: comes to 65792 elements, at most 65536 are allowed");
  EXPECT_EQ(program(R"("steps": [{"variants": [{"forwards": [{"nodes": [{"factor": 3}]}]}]}])"),
            "program.steps[0].variants[0].forwards[0].nodes[0].factor: expected a whole number "
            "from -2 to 2, found 3");
  EXPECT_EQ(refusal(R"({"schema": 1, "timeout_ms": 600001})"),
            "timeout_ms: expected a whole number from 0 to 600000, found 600001");
  EXPECT_EQ(refusal(R"({"schema": 1, "faults": [{"duration_us": 5000001}]})"),
            "faults[0].duration_us: expected a whole number from 0 to 5000000, found 5000001");
}

TEST(CaseJson, NamesTheNearestFieldOfAnUnknownOne) {
  EXPECT_EQ(refusal(R"({"schema": 1, "progam": {}})"),
            "progam: unknown field; did you mean \"program\"?");
  EXPECT_EQ(
      refusal(R"({"schema": 1, "program": {"parameters": [{"colour": 1}]}})"),
      "program.parameters[0].colour: unknown field; known are: key, dtype, sizes, column_major, "
      "permuted, frozen, ignored, sparse, shared_with, copy_of, device, reducer");
}

TEST(CaseJson, RefusesListsOverTheirLimit) {
  std::string steps = "{}";
  for (std::uint32_t i = 0; i < reference::kMaxSteps; ++i) steps += ", {}";
  EXPECT_EQ(refusal(R"({"schema": 1, "program": {"steps": [)" + steps + "]}}"),
            "program.steps: has 65 elements, at most 64 are allowed");
}

TEST(CaseJson, EveryTruncationIsRefusedInOneLine) {
  std::string text = to_json(minimal());
  while (text.back() == '\n') text.pop_back();
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_NE(refusal(text.substr(0, length)), "accepted") << length;
}

TEST(CaseJson, DamagedTextIsReadOrRefusedButNeverMore) {
  const std::string text = to_json(generate(3, 4));
  Random random(5, 6);
  int refused = 0;
  constexpr int kTries = 3000;
  for (int i = 0; i < kTries; ++i) {
    std::string damaged = text;
    for (std::uint32_t k = random.between(1, 3); k > 0; --k)
      damaged[random.below(static_cast<std::uint32_t>(text.size()))] =
          static_cast<char>(random.below(256));
    const Result<Case> result = from_json(damaged, "x.json");
    if (result) continue;
    ++refused;
    const std::string& detail = result.error().failure().detail;
    ASSERT_EQ(std::count(detail.begin(), detail.end(), '\n'), 0) << detail;
  }
  EXPECT_GT(refused, kTries / 2);
}

TEST_F(CaseFile, IsWrittenAndReadBack) {
  const Case value = generate(1, 2);
  ASSERT_TRUE(write_case(path("case.json"), value, "a note").ok());
  std::string about;
  const Result<Case> back = read_case(path("case.json"), &about);
  ASSERT_TRUE(back.has_value());
  EXPECT_TRUE(equal(*back, value));
  EXPECT_EQ(about, "a note");
  EXPECT_EQ(file_count(), 1u);
}

TEST_F(CaseFile, ReadErrorsSayWhatToDo) {
  const auto error = [](const std::string& from) {
    const Result<Case> result = read_case(from);
    return result ? "accepted" : result.error().failure().detail;
  };
  EXPECT_EQ(error(path("absent.json")),
            "cannot read " + path("absent.json") + ": No such file or directory; check the path");
  EXPECT_EQ(error(folder_.string()),
            "cannot read " + folder_.string() + ": Is a directory; give one file of the folder");
  put("half.json", "{\"schema\": 1");
  EXPECT_EQ(error(path("half.json")),
            path("half.json") +
                ": not JSON: it ends too early, at line 1, column 13; the file is "
                "truncated, get a whole copy");
}

TEST_F(CaseFile, AFolderThatIsNotThereIsAnErrorAndNothingIsLeft) {
  const std::string there = path("absent/case.json");
  const Status status = write_case(there, minimal());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.failure().detail,
            "cannot write " + there + ": No such file or directory; create the folder first");
  EXPECT_EQ(file_count(), 0u);
}

TEST_F(CaseFile, AFolderInTheWayIsAnErrorAndNothingIsLeft) {
  fs::create_directory(path("case.json"));
  put("case.json/inside", "x");
  const Status status = write_case(path("case.json"), minimal());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(file_count(), 1u);
  EXPECT_TRUE(fs::exists(path("case.json/inside")));
}

// Whoever may write to the folder could lead a link anywhere.
TEST_F(CaseFile, ALinkIsNotFollowed) {
  put("target.json", "old");
  fs::create_symlink("target.json", path("link.json"));
  fs::create_symlink("absent.json", path("dangling.json"));
  for (const char* const name : {"link.json", "dangling.json"}) {
    const std::string refusal = "cannot write " + path(name) +
                                ": it is a symbolic link; remove it, or give the name of the file "
                                "to which it leads";
    EXPECT_EQ(write_file(path(name), "new").failure().detail, refusal);
    EXPECT_EQ(check_can_write(path(name)).failure().detail, refusal);
    EXPECT_TRUE(fs::is_symlink(path(name)));
  }
  std::ostringstream text;
  text << std::ifstream(path("target.json")).rdbuf();
  EXPECT_EQ(text.str(), "old");
  EXPECT_EQ(file_count(), 3u);
}

// To take the place of /dev/null by a file is possible for root.
TEST_F(CaseFile, ADeviceStaysWhatItIs) {
  const Status status = write_file("/dev/full", "new");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.failure().detail,
            "cannot write /dev/full: No space left on device; free some space or choose another "
            "folder");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_TRUE(write_file("/dev/null", "new").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(CaseFile, NobodyWaitsForAPipe) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(
      write_file(path("pipe"), "new").failure().detail,
      "cannot write " + path("pipe") + ": it is a pipe that nobody reads; start its reader first");
  const Result<std::string> read = read_file(path("pipe"), 100);
  EXPECT_EQ(read.value_or("an error"), "");
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_TRUE(write_file(path("pipe"), "new").ok());
  char text[8];
  EXPECT_EQ(::read(reader, text, sizeof text), 3);
  ::close(reader);
}

TEST_F(CaseFile, WhereNothingCanBeWrittenIsKnownBefore) {
  put("old.json", "old");
  EXPECT_TRUE(check_can_write(path("old.json")).ok());
  EXPECT_TRUE(check_can_write(path("new.json")).ok());
  EXPECT_TRUE(check_can_write("/dev/null").ok());
  EXPECT_EQ(file_count(), 1u);
  EXPECT_EQ(check_can_write(path("nowhere/new.json")).failure().detail,
            "cannot write " + path("nowhere/new.json") +
                ": No such file or directory; create the folder first");
  fs::create_directory(path("folder"));
  EXPECT_EQ(check_can_write(path("folder")).failure().detail,
            "cannot write " + path("folder") + ": Is a directory; give the name of a file in it");
}

// A limit on file sizes stops the write in the middle, as a full disk does.
TEST_F(CaseFile, AWriteThatStopsInTheMiddleLeavesTheOldFileAndNoOther) {
  put("case.json", "old");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = write_case(path("case.json"), minimal());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.failure().detail,
            "cannot write " + path("case.json") +
                ": File too large; raise the limit on file sizes (ulimit -f)");
  EXPECT_EQ(file_count(), 1u);
  std::ostringstream text;
  text << std::ifstream(path("case.json")).rdbuf();
  EXPECT_EQ(text.str(), "old");
}

}  // namespace
}  // namespace lockstep::properties
