// What exported scripts say, without running one: properties/subject/torch/export_test.sh does.
#include "properties/report/python_script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>

#include "properties/case/case_json.h"
#include "reference/test_programs.h"

namespace lockstep::properties {
namespace {

using reference::Node;

Case small_case(std::uint32_t parameters = 1) {
  Case c;
  c.program.parameters.resize(parameters);
  c.program.steps.resize(1);
  normalize(c);
  return c;
}

std::string script_of(const Case& c, const std::string& about = {}) {
  const Result<std::string> script = python_script(c, about);
  EXPECT_TRUE(script) << (script ? "" : script.error().failure().detail);
  return script ? *script : "";
}

std::string refusal_of(const Case& c) {
  const Result<std::string> script = python_script(c);
  EXPECT_FALSE(script);
  const std::string why = script ? "" : script.error().failure().detail;
  EXPECT_EQ(why.find('\n'), std::string::npos);
  return why;
}

testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no '" << part << "' in\n" << text;
}

void expect_all(const std::string& script, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_TRUE(has(script, part));
}

TEST(PythonScript, TellsTheProgramInWordsAndAsData) {
  Case c = small_case(2);
  c.program.parameters[1].dtype = reference::DType::kFloat16;
  c.program.parameters[1].sizes = {2, 3};
  c.program.options.mode = reference::Mode::kDynamic;
  c.program.options.bucket_bytes = 1024 * 1024 / 2;
  const std::string script = script_of(c, "one line\nand a second");
  expect_all(script, {"# one line\n# and a second\n#\n# 2 ranks, dynamic mode",
                      "# step 0 (synced): every rank: backward of p0"});
  EXPECT_FALSE(has(script, "schedule:"));
  expect_all(script, {"\"find_unused_parameters\": True", "\"bucket_cap_mb\": 0.5,",
                      "\"name\": \"p1\", \"dtype\": \"float16\", \"shape\": (2, 3), ",
                      "(\"use\", [], \"p0\", \"c0\")", "TOLERANCES = None"});
}

TEST(PythonScript, HasTheGradientsThatTheContractExpects) {
  const std::string script = script_of(small_case());
  expect_all(script, {"\"c0\": {\n            0: [10.0],\n            1: [16.0],",
                      "\"p0\": every_rank([13.0]),"});
  EXPECT_FALSE(has(script, "\"calls\":"));
}

TEST(PythonScript, HasAnotherOrderInMemoryOnlyWhereItShows) {
  Case c = small_case();
  c.program.parameters[0].column_major = true;
  c.program.parameters[0].sizes = {3, 2};
  EXPECT_TRUE(has(script_of(c), "\"memory\": [1, 0]"));
  c.program.parameters[0].sizes = {3, 1};
  EXPECT_TRUE(has(script_of(c), "\"memory\": [0, 1]"));
}

TEST(PythonScript, NamesTheErrorThatTheContractExpects) {
  EXPECT_TRUE(has(script_of(small_case(2)),
                  "\"calls\": every_rank((\"backward 0\", \"p1 got no gradient\")),"));
}

TEST(PythonScript, KeepsToItsLinesWhateverIsAboveThem) {
  Case c = small_case();
  c.program.parameters[0].sizes = {200};
  c.program.values = reference::Values::kGeneral;
  const std::string about = std::string(300, 'x') + " \r\fimport os " + std::string(90, 'y');
  const std::string script = script_of(c, about);
  EXPECT_FALSE(has(script, "\r"));
  EXPECT_FALSE(has(script, "\f"));
  for (std::size_t begin = 0; begin < script.size();) {
    const std::size_t end = std::min(script.find('\n', begin), script.size());
    EXPECT_LE(end - begin, 100u) << script.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(PythonScript, AllowsForRoundingOnlyWhereTheOrderOfAdditionsShows) {
  Case c = small_case(2);
  c.program.world = 3;
  for (reference::Parameter& parameter : c.program.parameters) parameter.sizes = {5};
  auto& nodes = c.program.steps[0].variants[0].forwards[0].nodes;
  nodes.resize(2);
  nodes[1].parameter = 1;
  nodes[1].inputs.resize(1);
  normalize(c);
  EXPECT_TRUE(has(script_of(c), "TOLERANCES = None"));
  c.program.values = reference::Values::kGeneral;
  EXPECT_TRUE(has(script_of(c), "TOLERANCES = {\n    \"p0\": "));
}

TEST(PythonScript, WritesEveryKindOfNode) {
  Case c = small_case();
  auto& nodes = c.program.steps[0].variants[0].forwards[0].nodes;
  for (const auto kind : {Node::Kind::kSum, Node::Kind::kScale, Node::Kind::kSplit,
                          Node::Kind::kStop, Node::Kind::kDetach, Node::Kind::kCheckpoint}) {
    Node node;
    node.kind = kind;
    node.factor = -2;
    node.inputs.resize(1);
    node.inputs[0].slot = 1;
    if (kind == Node::Kind::kCheckpoint) node.body.resize(1);
    nodes.push_back(node);
  }
  const std::string script = script_of(c);
  expect_all(script, {"(\"sum\", [(0, 0)]),", "(\"scale\", [(1, 0)], -2),",
                      "(\"split\", [(2, 0)]),", "(\"stop\", [(3, 1)]),", "(\"detach\", [(4, 0)]),",
                      "(\"checkpoint\", [(5, 0)], [\n"});
}

TEST(PythonScript, SpecialValuesAreWrittenAsPythonReadsThem) {
  Case c = small_case();
  c.program.values = reference::Values::kSpecial;
  c.program.parameters[0].sizes = {200};
  const std::string script = script_of(c);
  expect_all(script, {" nan,", " inf,", " -inf,", " -0.0,", "e-"});
}

TEST(PythonScript, RefusesByNameWhatPlainPyTorchCannotDo) {
  Case c = small_case();
  c.program.options.manual_sync = true;
  c.program.options.order = reference::Order::kBcube;
  EXPECT_TRUE(has(refusal_of(c), "no means for bcube (Gloo's bcube order), manual_sync ("));
  c = small_case();
  c.program.parameters[0].ignored = true;
  EXPECT_TRUE(has(refusal_of(c), "ignored (ignored parameters)"));
  c = small_case();
  c.program.options.hook = reference::Hook::kElsewhere;
  EXPECT_TRUE(has(refusal_of(c), "a communication hook other than allreduce and fp16_compress"));
  c = small_case();
  c.faults.faults.resize(1);
  EXPECT_TRUE(has(refusal_of(c), "faults"));
  c = small_case();
  c.program.parameters[0].frozen = true;
  EXPECT_TRUE(has(refusal_of(c), "a model without parameters that require a gradient"));
  c = small_case();
  c.program.values = reference::Values::kSpecial;
  c.program.world = 3;
  EXPECT_TRUE(has(refusal_of(c), "special values at more than two ranks"));
}

TEST(PythonScript, HasTheYoungOptionsOfACaseAndNoOthers) {
  Case c = small_case();
  c.program.options.mode = reference::Mode::kDynamic;
  const std::string old = script_of(c);
  for (const char* name : {"batched_grad_copy", "lazy_bucket_allocation", "bucket_cap_mb_list",
                           "skip_all_reduce_unused_params"})
    EXPECT_FALSE(has(old, name));
  EXPECT_TRUE(has(old, "ENDS_BY_HAND = False"));
  reference::Replicated& options = c.program.options;
  c.torch.batched_grad_copy = c.torch.lazy_bucket_allocation = true;
  c.torch.skip_all_reduce_unused_params = true;
  options.first_bucket_bytes = 524288;
  options.last_bucket_bytes = 262144;
  c.torch.finalization = TorchOptions::Finalization::kAfter;
  expect_all(script_of(c),
             {"    \"batched_grad_copy\": True,\n    \"lazy_bucket_allocation\": True,\n"
              "    \"skip_all_reduce_unused_params\": True,\n"
              "    \"bucket_cap_mb_list\": [0.5, 25.0, 0.25],\n}",
              "ENDS_BY_HAND = True"});
  c.torch.finalization = TorchOptions::Finalization::kNever;
  EXPECT_TRUE(has(refusal_of(c),
                  "no means for a pass that the user does not end once, after "
                  "backward (never)"));
}

TEST(PythonScript, WritesForwardsBackwardsAndWhatIsBetweenThemInOrder) {
  Case c = small_case();
  c.program.options.mode = reference::Mode::kDynamic;
  c.program.steps.resize(1);
  reference::RankPass pass = reference::testing::uses({0});
  pass.forwards.resize(2, pass.forwards[0]);
  pass.forwards[0].local = true;
  pass.backwards = {{{0}}, {{1}}};
  pass.backwards[0].forwards = 1;
  pass.backwards[1].evaluates = pass.backwards[1].zeroes = pass.backwards[1].drops = true;
  c.program.steps[0].kind = reference::PassKind::kSynced;
  c.program.steps[0].variants = {pass};
  reference::normalize(c.program);
  expect_all(script_of(c),
             {"(\"forward\", 0, \"no_sync\"), (\"backward\", [0]), (\"forward\", 1, \"synced\")",
              "(\"forward\", 0, \"no_grad\"),", "(\"zero_grad\",),", "(\"drop\", [0])",
              "(\"backward\", [1])"});
}

TEST(PythonScript, WritesWhatOutlivesItsStepAndTheBackwardThatStartsFromIt) {
  Case c = small_case();
  c.program.steps.resize(2);
  reference::RankPass holding = reference::testing::uses({0});
  holding.forwards.resize(3, holding.forwards[0]);
  holding.forwards[1].local = true;
  holding.backwards = {{{0}}};
  holding.keep_outputs = holding.hold_outputs = true;
  c.program.steps[0].variants = {holding};
  reference::RankPass later = reference::testing::uses({0});
  later.backwards = {{{0}}, {{0}}};
  later.backwards[0].held = true;
  c.program.steps[1].variants = {later};
  reference::normalize(c.program);
  expect_all(script_of(c), {"\"held\": ([1], [2])", "(\"held_backward\", 0, [0])"});
}

TEST(PythonScript, RefusesWhatIsTooLargeToRead) {
  Case c = small_case();
  c.program.world = 8;
  c.program.parameters[0].sizes = {1024, 64};
  EXPECT_TRUE(has(refusal_of(c), "make it small first"));
}

}  // namespace
}  // namespace lockstep::properties
