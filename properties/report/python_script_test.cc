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
  expect_all(script, {R"("find_unused_parameters": true)", R"("bucket_cap_mb": 0.5,)",
                      R"({"dtype": "float16",)", R"("shape": [2,3])", R"(["use",[],"p0","c0"])",
                      R"("tolerances": null)"});
}

TEST(PythonScript, HasTheGradientsThatTheContractExpects) {
  const std::string script = script_of(small_case());
  expect_all(script, {R"("constants": [{"c0":[10.0]},{"c0":[16.0]}])",
                      R"({"calls": {"every rank":"success"})", R"("ends": false,)",
                      R"("gradients": {"p0":{"every rank":[13.0]}})"});
}

TEST(PythonScript, HasAnotherOrderInMemoryOnlyWhereItShows) {
  Case c = small_case();
  c.program.parameters[0].column_major = true;
  c.program.parameters[0].sizes = {3, 2};
  EXPECT_TRUE(has(script_of(c), R"("memory": [1,0])"));
  c.program.parameters[0].sizes = {3, 1};
  EXPECT_TRUE(has(script_of(c), R"("memory": [0,1])"));
}

TEST(PythonScript, NamesTheErrorThatTheContractExpects) {
  EXPECT_TRUE(has(script_of(small_case(2)), R"("calls": {"every rank":[0,"p1 got no gradient"]})"));
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
  EXPECT_TRUE(has(script_of(c), R"("tolerances": null)"));
  c.program.values = reference::Values::kGeneral;
  EXPECT_TRUE(has(script_of(c), R"("tolerances": {"p0":)"));
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
  expect_all(script,
             {R"(["sum",[[0,0]]],)", R"(["scale",[[1,0]],-2],)", R"(["split",[[2,0]]],)",
              R"(["stop",[[3,1]]],)", R"(["detach",[[4,0]]],)", R"(["checkpoint",[[5,0]],[[)"});
}

TEST(PythonScript, SpecialValuesAreTextsWhereJsonHasNone) {
  Case c = small_case();
  c.program.values = reference::Values::kSpecial;
  c.program.parameters[0].sizes = {200};
  const std::string script = script_of(c);
  expect_all(script, {R"("nan",)", R"("inf",)", R"("-inf",)", "-0.0,", "e-"});
}

TEST(PythonScript, RefusesByNameWhatPlainPyTorchCannotDo) {
  Case c = small_case();
  c.program.options.manual_sync = true;
  c.program.options.mode = reference::Mode::kDynamic;
  c.program.options.order = reference::Order::kBcube;
  EXPECT_TRUE(has(refusal_of(c), "no means for bcube (Gloo's bcube order), manual sync with a"));
  c = small_case();
  c.program.options.with_values = true;
  EXPECT_TRUE(has(refusal_of(c), "no means for values of parameters"));
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

TEST(PythonScript, HasBuffersAndManualSync) {
  Case c = small_case();
  c.program.options.mode = reference::Mode::kPlain;
  EXPECT_TRUE(has(script_of(c), R"("buffers": [])"));
  c.program.buffers.resize(2);
  c.program.buffers[0].sizes = {2};
  c.program.buffers[1].sizes = {0};
  c.program.options.manual_sync = true;
  const std::string script = script_of(c);
  expect_all(script, {R"("buffers": [[2]])", R"("broadcast_buffers": true)",
                      R"(["forward",-1,0,"no_sync"],)", R"(["sync_gradients",-1],)"});
  c.program.options.keep_buffers = true;
  EXPECT_TRUE(has(script_of(c), R"("broadcast_buffers": false)"));
}

TEST(PythonScript, HasTheYoungOptionsOfACaseAndNoOthers) {
  Case c = small_case();
  c.program.options.mode = reference::Mode::kDynamic;
  const std::string old = script_of(c);
  for (const char* name : {"batched_grad_copy", "lazy_bucket_allocation", "bucket_cap_mb_list",
                           "skip_all_reduce_unused_params"})
    EXPECT_FALSE(has(old, name));
  EXPECT_TRUE(has(old, R"("ends_by_hand": false)"));
  reference::Replicated& options = c.program.options;
  c.torch.batched_grad_copy = c.torch.lazy_bucket_allocation = true;
  c.torch.skip_all_reduce_unused_params = true;
  options.first_bucket_bytes = 524288;
  options.last_bucket_bytes = 262144;
  c.torch.finalization = TorchOptions::Finalization::kAfter;
  expect_all(script_of(c), {R"("batched_grad_copy": true)", R"("lazy_bucket_allocation": true)",
                            R"("skip_all_reduce_unused_params": true)",
                            R"("bucket_cap_mb_list": [0.5,25.0,0.25])", R"("ends_by_hand": true)"});
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
             {R"(["forward",-1,0,"no_sync"],)", R"(["backward",0,[0]],)",
              R"(["forward",-1,1,"synced"],)", R"(["forward",1,0,"no_grad"],)",
              R"(["zero_grad",1,"to none"],)", R"(["drop",1,[0]])", R"(["backward",1,[1]])"});
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
  expect_all(script_of(c), {R"("hold_outputs": true)", R"(["held_backward",0,[1]])"});
}

TEST(PythonScript, RefusesWhatIsTooLargeToRead) {
  Case c = small_case();
  c.program.world = 8;
  c.program.parameters[0].sizes = {1024, 64};
  EXPECT_TRUE(has(refusal_of(c), "make it small first"));
}

}  // namespace
}  // namespace lockstep::properties
