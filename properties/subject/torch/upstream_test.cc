// What PyTorch's own tests of DistributedDataParallel assert, on the cases of
// properties/corpus/upstream: the table of its README.md says for each case what has to come of it.
//
// Method: what each profile expects of a case has to agree with that row: Lockstep's, and that of
// each version of PyTorch that the row names. The corpus check runs the cases on Lockstep's reducer
// and judges them by that profile; the last test here runs them on each PyTorch that is built. A
// failure means that a reducer does something else than upstream's test asserts, or that a case
// says something else than that test does. To replay:
// lockstep replay properties/corpus/upstream/NAME.json --subject torch
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "properties/case/capabilities.h"
#include "properties/case/case_json.h"
#include "properties/lane/torch_lane.h"
#include "properties/oracle/judge.h"
#include "properties/subject/profile.h"
#include "properties/subject/torch_subject.h"
#include "reference/program.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;
using reference::Expectation;
using reference::ExpectedGradient;
using reference::ExpectedStep;
using reference::Program;

const std::string kFolder = LOCKSTEP_CORPUS "/upstream/";

struct Row {
  std::string name;
  std::string torch;  // "all", "from VERSION", or "-": what the C++ interface of PyTorch lacks
  std::vector<std::string> facts;
};

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(trimmed(part));
  return parts;
}

// The rows of the table with the columns: case, test of PyTorch, torch, what has to come of it.
std::vector<Row> rows_of_readme() {
  std::vector<Row> rows;
  std::ifstream in(kFolder + "README.md");
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> cells = split(line, '|');
    const bool is_row = cells.size() == 5 && line.front() == '|';
    if (is_row && cells[1] == "case")
      inside = true;
    else if (!is_row)
      inside = false;
    else if (inside && cells[1].front() != '-')
      rows.push_back({cells[1], cells[3], split(cells[4], ';')});
  }
  return rows;
}

// One expectation of a case, and what a fact says of it. Each function returns what is wrong, or
// nothing.
class Facts {
 public:
  Facts(const Program& program, Expected expectation)
      : program_(program), expectation_(std::move(expectation)) {}

  std::string check(const std::string& fact) const {
    if (fact == "all steps succeed") return first_error();
    if (fact == "an error") return first_error().empty() ? "no step fails" : "";
    if (fact == "refused")
      return program_.disagreement.kind == reference::DisagreementKind::kNone
                 ? "the case has no disagreement"
                 : "";
    if (fact.starts_with("buckets ")) return check_buckets(fact.substr(8));
    unsigned step = 0;
    int end = 0;
    if (std::sscanf(fact.c_str(), "step %u: %n", &step, &end) != 1 || end == 0)
      return "it is no fact that this test knows";
    if (step >= expectation_.steps.size()) return "there is no such step";
    return check_step(step, fact.substr(static_cast<std::size_t>(end)));
  }

 private:
  std::string first_error() const {
    for (std::size_t step = 0; step < expectation_.steps.size(); ++step) {
      const ExpectedStep& expected = expectation_.steps[step];
      if (!expectation_.knowledge_of(step).is_modelled)
        return "the model cannot tell step " + std::to_string(step);
      for (const reference::ExpectedRankStep& rank : expected.ranks)
        if (rank.outcome != reference::Outcome::kSuccess)
          return "step " + std::to_string(step) + " fails";
    }
    return "";
  }

  // "0 2, 1": the sets of parameters that share a bucket, in any order.
  std::string check_buckets(const std::string& text) const {
    std::set<std::set<std::uint32_t>> wanted;
    std::set<std::set<std::uint32_t>> found;
    for (const std::string& bucket : split(text, ',')) {
      std::istringstream in(bucket);
      std::set<std::uint32_t> members;
      for (std::uint32_t member = 0; in >> member;) members.insert(member);
      wanted.insert(members);
    }
    for (const reference::ExpectedBucket& bucket : expectation_.buckets)
      found.insert({bucket.parameters.begin(), bucket.parameters.end()});
    return found == wanted ? "" : "the buckets are others";
  }

  std::string check_step(std::size_t step, const std::string& text) const {
    std::vector<std::string> words = split(text, ' ');
    const std::string what = words.back();
    words.pop_back();
    if (words.empty()) return "it names nothing";
    for (const std::string& word : words) {
      if (word == "buffers") {
        if (what != "broadcast" && what != "alone") return what + " is no word for buffers";
        if (are_buffers_broadcast(step) != (what == "broadcast")) return "they are not";
        continue;
      }
      unsigned parameter = 0;
      if (std::sscanf(word.c_str(), "p%u", &parameter) != 1 ||
          parameter >= program_.parameters.size())
        return word + " is no parameter";
      if (!holds(step, parameter, what)) return word + " is not " + what;
    }
    return "";
  }

  bool are_buffers_broadcast(std::size_t step) const {
    const std::vector<reference::ExpectedCollective>& all = expectation_.steps[step].collectives;
    return std::any_of(all.begin(), all.end(), [](const reference::ExpectedCollective& one) {
      return one.op == reference::ExpectedCollective::Op::kBroadcastBuffers;
    });
  }

  std::vector<std::uint64_t> bits_of(const ExpectedGradient& gradient,
                                     std::size_t parameter) const {
    if (!gradient.defined) return {};
    const auto begin = expectation_.bits.begin() + static_cast<std::ptrdiff_t>(gradient.offset);
    return {begin, begin + static_cast<std::ptrdiff_t>(
                               reference::gradient_words(program_.parameters[parameter]))};
  }

  bool holds(std::size_t step, std::size_t parameter, const std::string& what) const {
    const std::vector<reference::ExpectedRankStep>& ranks = expectation_.steps[step].ranks;
    const ExpectedGradient& first = ranks.front().gradients[parameter];
    bool differs = false;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const ExpectedGradient& gradient = ranks[rank].gradients[parameter];
      if (!gradient.known || gradient.defined == (what == "none")) return false;
      if (what == "averaged" && !gradient.reduced) return false;
      if (what == "local" && gradient.reduced) return false;
      if (what == "kept" &&
          (step == 0 ||
           bits_of(gradient, parameter) !=
               bits_of(expectation_.steps[step - 1].ranks[rank].gradients[parameter], parameter)))
        return false;
      differs = differs || bits_of(gradient, parameter) != bits_of(first, parameter);
    }
    if (what == "averaged") return !differs;
    if (what == "local" || what == "own") return differs;
    return what == "none" || what == "kept";
  }

  const Program& program_;
  const Expected expectation_;
};

// What of the row does not hold under the profile, in one line; empty if all does.
std::string judged(const Row& row, const Case& c, const Profile& profile) {
  const Facts facts(c.program, expectation_of(c, profile));
  for (const std::string& fact : row.facts)
    if (const std::string wrong = facts.check(fact); !wrong.empty())
      return row.name + ": '" + fact + "': " + wrong;
  return "";
}

Case read(const Row& row) {
  const Result<Case> c = read_case(kFolder + row.name + ".json");
  EXPECT_TRUE(c) << row.name << ": " << c.error().to_string();
  return c ? *c : Case();
}

// Whether PyTorch's tests assert it of this version.
bool is_asserted_of(const Row& row, const torch_model::Version& version) {
  if (row.torch == "all") return true;
  for (const torch_model::Version& since : torch_model::kTestedVersions)
    if (row.torch == "from " + torch_model::to_string(since)) return since <= version;
  EXPECT_EQ(row.torch, "-") << row.name;
  return false;
}

TEST(Upstream, EachCaseHasARow) {
  const std::vector<Row> rows = rows_of_readme();
  EXPECT_GE(rows.size(), 35U);
  std::set<std::string> named;
  for (const Row& row : rows) {
    EXPECT_TRUE(named.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.facts.empty()) << row.name;
  }
  std::set<std::string> there;
  for (const auto& entry : fs::directory_iterator(kFolder))
    if (entry.path().extension() == ".json") there.insert(entry.path().stem().string());
  EXPECT_EQ(named, there);
}

TEST(Upstream, TheContractSaysWhatTheTestsAssert) {
  for (const Row& row : rows_of_readme())
    EXPECT_EQ(judged(row, read(row), Profile::lockstep()), "");
}

TEST(Upstream, PyTorchDoesWhatTheTestsAssertOfItsVersion) {
  for (const Row& row : rows_of_readme()) {
    const Case c = read(row);
    if (row.torch == "-") {
      EXPECT_FALSE(missing(c, torch_capabilities()).empty()) << row.name << ": PyTorch can run it";
      continue;
    }
    EXPECT_EQ(missing_message(c, torch_capabilities(), "torch"), "") << row.name;
    for (const torch_model::Version& version : torch_model::kTestedVersions)
      EXPECT_EQ(judged(row, c, Profile::torch(version)).empty(), is_asserted_of(row, version))
          << torch_model::to_string(version) << ": " << judged(row, c, Profile::torch(version));
  }
}

TEST(Upstream, WrongFactsAreFound) {
  Row row = {"global_local_unused_params_grad", "all", {}};
  const Case c = read(row);
  for (const char* fact :
       {"an error", "refused", "buckets 0, 1", "step 0: p0 none", "step 0: p0 local",
        "step 0: p0 kept", "step 0: p2 averaged", "step 1: p0 averaged", "step 0: p3 none",
        "step 0: averaged", "step 0: buffers equal", "step 0: buffers broadcast", "nonsense"}) {
    row.facts = {fact};
    EXPECT_NE(judged(row, c, Profile::lockstep()), "") << fact;
  }
}

// Runs what the table says of each version on that version, where it is built.
TEST(Upstream, EveryPyTorchThatIsBuiltRunsTheCases) {
  unsigned runs = 0;
  for (const torch_model::Version& version : torch_model::kTestedVersions) {
    const Result<Subject> subject =
        torch_subject(torch_model::to_string(version), LOCKSTEP_PROGRAMS);
    if (!subject) continue;
    const std::unique_ptr<Lane> lane = make_torch_lane(*subject);
    for (const Row& row : rows_of_readme()) {
      if (!is_asserted_of(row, version)) continue;
      const Case c = read(row);
      Observation observation;
      lane->run(c, expectation_of(c, subject->profile), observation);
      const Verdict verdict =
          judge(c, subject->profile, expectation_of(c, subject->profile, observation.recoveries),
                observation);
      EXPECT_TRUE(verdict.ok()) << torch_model::to_string(version) << ": " << row.name << ": "
                                << verdict.message;
      ++runs;
    }
  }
  if (runs == 0) GTEST_SKIP() << "no version is built: ci/torch --version 2.15.0 builds one";
  std::printf("%u runs\n", runs);
}

}  // namespace
}  // namespace lockstep::properties
