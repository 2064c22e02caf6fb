#include "properties/report/python_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "properties/case/calls.h"
#include "properties/case/capabilities.h"
#include "properties/case/describe.h"
#include "properties/case/fields.h"
#include "properties/lane/python_job.h"
#include "properties/report/python_parts.h"
#include "properties/subject/torch/model/hook_model.h"
#include "properties/subject/torch_subject.h"
#include "reducer/base/check.h"
#include "reference/arithmetic.h"
#include "reference/model.h"
#include "reference/model/engine.h"
#include "reference/sparse.h"
#include "reference/values.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using reference::ExpectedGradient;
using reference::ExpectedRankStep;
using Finalization = TorchOptions::Finalization;
using reference::Hook;
using reference::Input;
using reference::Node;
using reference::Outcome;
using reference::PassKind;
using reference::Program;

constexpr std::size_t kLineLength = 98;
constexpr double kRoundings = 16;  // the roundings that a tolerance accepts

// Lists what DistributedDataParallel cannot do, or what a script cannot express.
std::vector<std::string> obstacles(const Case& c) {
  std::vector<std::string> out;
  const Capabilities newest = torch_capabilities(torch_model::kTestedVersions.back());
  const Capabilities lacks = missing(c, newest.without(Capability::kIgnored));
  for (int i = 0; i < kCapabilities; ++i) {
    const auto capability = static_cast<Capability>(i);
    if (lacks.has(capability))
      out.push_back(fmt::format("{} ({})", name_of(capability), meaning_of(capability)));
  }
  if (!c.faults.faults.empty()) out.emplace_back("faults");
  if (c.switched.option != SwitchedOption::kNone)
    out.emplace_back("a second run with an option switched");
  const Program& program = c.program;
  const Hook hook = program.options.hook;
  const Finalization finalization = c.torch.finalization;
  if (finalization != Finalization::kAutomatic && finalization != Finalization::kAfter)
    out.push_back(fmt::format("a pass that the user does not end once, after backward ({})",
                              fields::name_of(finalization)));
  if (hook != Hook::kNone && hook != Hook::kAllReduce && hook != Hook::kFloat16)
    out.emplace_back("a communication hook other than allreduce and fp16_compress");
  if (program.values == reference::Values::kSpecial && program.world > 2)
    out.emplace_back("special values at more than two ranks, whose sums depend on the order");
  if (std::any_of(program.parameters.begin(), program.parameters.end(),
                  [](const auto& parameter) { return parameter.permuted != 0; }))
    out.emplace_back("parameters that are neither row-major nor column-major");
  if (std::all_of(program.parameters.begin(), program.parameters.end(),
                  [](const auto& parameter) { return parameter.frozen; }))
    out.emplace_back("a model without parameters that require a gradient");
  return out;
}

std::string python_bool(bool value) { return value ? "True" : "False"; }

// Returns a text from which Python reads the same double.
std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  std::string out = fmt::format("{}", value);
  if (out.find_first_of(".en") == std::string::npos) out += ".0";
  return out;
}

// Returns the items between brackets, on as many lines as they need.
std::string python_list(const std::vector<std::string>& items, std::size_t indent) {
  std::string out = "[";
  std::size_t line = indent + 1;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string item = items[i] + (i + 1 < items.size() ? "," : "");
    if (line + 1 + item.size() > kLineLength) {
      out += "\n" + std::string(indent + 1, ' ');
      line = indent + 1;
    } else if (i > 0) {
      out += " ";
      ++line;
    }
    out += item;
    line += item.size();
  }
  return out + "]";
}

std::string python_floats(const std::vector<double>& values, std::size_t indent) {
  std::vector<std::string> items;
  items.reserve(values.size());
  for (const double value : values) items.push_back(python_float(value));
  return python_list(items, indent);
}

// Returns the text as comments, none of which is longer than the other lines.
std::string commented(std::string text) {
  for (char& c : text)  // Python treats some of them as the end of a line
    if (c != '\n' && (static_cast<unsigned char>(c) < ' ' || c == '\x7f')) c = ' ';
  std::string out;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t newline = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, newline - begin);
    begin = newline + 1;
    while (line.size() > kLineLength - 2) {
      const std::size_t space = line.rfind(' ', kLineLength - 2);
      const bool can_break = space != std::string::npos && space > 0;
      const std::size_t cut = can_break ? space : kLineLength - 2;
      out += fmt::format("# {}\n", line.substr(0, cut));
      line.erase(0, can_break ? cut + 1 : cut);
    }
    out += line.empty() ? "#\n" : fmt::format("# {}\n", line);
  }
  return out;
}

const char* python_dtype(DType dtype) {
  if (dtype == DType::kFloat64) return "float64";
  return dtype == DType::kFloat16 ? "float16" : "float32";
}

// The module, without what a file of Python begins with.
std::string model_text() {
  const std::string_view file = kPythonModel;
  const std::size_t begin = file.find("\n\nclass ");
  LOCKSTEP_CHECK(begin != std::string_view::npos);
  return fmt::format("\n# ---- the model: a graph of scalars, built from a list of nodes ----\n{}",
                     file.substr(begin));
}

class ScriptWriter {
 public:
  ScriptWriter(const Case& c, std::string_view about)
      : case_(c),
        program_(c.program),
        about_(about),
        expectation_(reference::run(c.program, reference::Contract::lockstep())) {}

  // Returns the script, or the reason why there is none.
  Result<std::string> write() {
    const auto refused = [](std::string why) {
      return failed(Status(Code::kInvalidArgument, std::move(why)));
    };
    if (asks_for_completeness())
      return refused(
          "the case cannot be exported: an error is expected in check_complete(), which "
          "PyTorch does not have");
    write_steps();
    write_constants();
    write_expected();
    if (numbers_ > kMaxScriptNumbers)
      return refused(
          fmt::format("the case cannot be exported: it has {} numbers, and a script at "
                      "most {}; make it small first (lockstep shrink)",
                      numbers_, kMaxScriptNumbers));
    return title() + kPythonImports + options() + parameters() + tolerances() + steps_ +
           constants_ + expected_ + model_text() + kPythonRunner;
  }

 private:
  struct Use {
    std::uint32_t parameter = 0;  // the owner
    std::uint32_t key = 0;
    std::uint32_t entries = 0;  // the most entries that it looks up
    bool operator<(const Use& other) const {
      return std::tie(parameter, key, entries) <
             std::tie(other.parameter, other.key, other.entries);
    }
  };
  struct Constant {
    std::string name;
    std::vector<bool> is_used_by;  // rank
  };
  using Constants = std::map<Use, Constant>;

  bool asks_for_completeness() const {
    for (std::size_t s = 0; s < expectation_.steps.size(); ++s) {
      const auto& variants = program_.steps[s].variants;
      const auto& ranks = expectation_.steps[s].ranks;
      for (std::size_t r = 0; r < ranks.size(); ++r)
        if (ranks[r].outcome == Outcome::kOwnError &&
            ranks[r].error_call >= reference::call_count(variants[r % variants.size()]))
          return true;
    }
    return false;
  }

  std::string title() const;
  std::string options() const;
  std::string parameters() const;
  std::string tolerances() const;
  void write_steps();
  std::string pass_text(std::size_t step, const reference::RankPass& pass,
                        const std::vector<bool>& ranks);
  std::string nodes_text(const std::vector<Node>& nodes, std::size_t indent,
                         const std::vector<bool>& ranks, Constants& constants);
  std::string node_text(const std::vector<Node>& nodes, std::size_t index, std::size_t indent,
                        const std::vector<bool>& ranks, Constants& constants);
  void write_constants();
  void write_expected();
  std::string expected_calls(std::size_t step) const;
  std::string expected_gradient(const ExpectedRankStep& rank, std::size_t parameter);
  std::string by_rank(const std::vector<std::string>& items) const;
  void note(const Program& program, std::size_t parameter, const std::vector<double>& values);

  const Case& case_;
  const Program& program_;
  const std::string_view about_;
  const reference::Expectation expectation_;
  std::vector<Constants> constants_of_;    // by step
  std::map<std::size_t, double> largest_;  // the largest magnitude, by first owner
  std::uint64_t numbers_ = 0;
  std::string steps_;
  std::string constants_;
  std::string expected_;
};

std::string input_text(const std::vector<Node>& nodes, std::size_t index, std::uint32_t slot) {
  const std::uint32_t slots = nodes[index].kind == Node::Kind::kSplit ? 2 : 1;
  return fmt::format("({}, {})", index, slot % slots);
}

constexpr const char* kHowToRead = R"(#
# How to read it: p0(p1) is a use of parameter p0 whose input is a use of parameter p1, so that the
# backward reaches p0 first. A use of p with a constant c adds (p * c).sum() to its inputs: where
# the gradient s arrives, p gets s * c. "const" has no inputs; stop() lets no gradient through
# (None); detach() detaches; checkpoint{...}() runs a nested backward over a graph of its own.
#
# What is expected ("the contract"): in a synced step every parameter that some rank used since it
# was last synced ends, on every rank, with the average over the ranks of what each accumulated. One
# that no rank used keeps its gradient. Under no_sync each rank keeps its own sums. A backward that
# cannot do this (a parameter without a gradient, where unused parameters are not looked for; a
# second backward over one synced pass; a parameter ready twice) raises, on every rank.
#
# Run it with: python3 THIS_FILE
# Exit code: 0 as expected, 1 differs, 2 cannot run.
)";

std::string ScriptWriter::title() const {
  Case plain = case_;
  plain.schedule = {};
  plain.timeout_ms = 0;
  std::string text = describe(plain);
  text.erase(text.rfind('\n', text.size() - 2) + 1);  // the last line is the schedule
  std::string out =
      "#!/usr/bin/env python3\n"
      "# A training program for PyTorch's DistributedDataParallel over Gloo on CPUs, "
      "which it runs and\n# checks. Made by lockstep export --python.\n#\n";
  if (!about_.empty()) out += commented(std::string(about_)) + "#\n";
  return out + commented(text) + kHowToRead;
}

std::string ScriptWriter::options() const {
  const reference::Replicated& options = program_.options;
  std::string hook = "None";
  if (options.hook == Hook::kAllReduce) hook = "\"allreduce_hook\"";
  if (options.hook == Hook::kFloat16) hook = "\"fp16_compress_hook\"";
  const auto in_mib = [](std::uint64_t bytes) {
    return python_float(static_cast<double>(bytes) / (1024.0 * 1024.0));
  };
  std::string young;  // versions that lack these refuse them
  for (const auto& [name, is_on] :
       {std::pair("batched_grad_copy", case_.torch.batched_grad_copy),
        {"lazy_bucket_allocation", case_.torch.lazy_bucket_allocation},
        {"skip_all_reduce_unused_params", case_.torch.skip_all_reduce_unused_params}})
    if (is_on) young += fmt::format("    \"{}\": True,\n", name);
  if (options.last_bucket_bytes != 0)
    young += fmt::format("    \"bucket_cap_mb_list\": [{}, {}, {}],\n",
                         in_mib(options.first_bucket_bytes), in_mib(options.bucket_bytes),
                         in_mib(options.last_bucket_bytes));
  return fmt::format(
      "\n\n# ---- the program, as data ----\n\n"
      "WORLD = {}\n"
      "OPTIONS = {{\n"
      "    \"find_unused_parameters\": {},\n"
      "    \"static_graph\": {},\n"
      "    \"gradient_as_bucket_view\": {},\n"
      "    \"bucket_cap_mb\": {},\n"
      "{}"
      "}}\n"
      "FIRST_BUCKET_BYTES = {}\n"
      "HOOK = {}\n"
      "ENDS_BY_HAND = {}  # after each synced backward, by finalize_backward()\n\n",
      program_.world, python_bool(options.mode == reference::Mode::kDynamic),
      python_bool(options.mode == reference::Mode::kStatic), python_bool(options.views),
      in_mib(options.bucket_bytes), young, options.first_bucket_bytes, hook,
      python_bool(case_.torch.finalization == Finalization::kAfter));
}

std::string ScriptWriter::parameters() const {
  std::string out = "PARAMETERS = [\n";
  for (std::uint32_t i = 0; i < program_.parameters.size(); ++i) {
    const reference::Parameter& parameter = program_.parameters[i];
    if (const std::uint32_t owner = reference::owner_of(program_, i); owner != i) {
      out += fmt::format("    {{\"name\": \"p{}\", \"same_as\": \"p{}\"}},\n", i, owner);
      continue;
    }
    std::string shape = fmt::format("{}", fmt::join(parameter.sizes, ", "));
    if (parameter.sizes.size() == 1) shape += ",";
    out += fmt::format(
        "    {{\"name\": \"p{}\", \"dtype\": \"{}\", \"shape\": ({}), \"requires_grad\": {},\n"
        "     \"memory\": [{}], \"sparse\": {}}},\n",
        i, python_dtype(parameter.dtype), shape, python_bool(!parameter.frozen),
        fmt::join(python_memory(parameter), ", "), python_bool(parameter.sparse));
  }
  return out + "]\n\n";
}

void ScriptWriter::note(const Program& program, std::size_t parameter,
                        const std::vector<double>& values) {
  numbers_ += values.size();
  double& largest = largest_[reference::owner_of(program, static_cast<std::uint32_t>(parameter))];
  for (const double value : values)
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
}

// Whether the model computes the same bits with PyTorch's layout of buckets. At two ranks the one
// addition has no order, but additions within a sparse gradient have one. With more ranks the order
// is that of PyTorch's layout.
bool are_bits_certain(const Case& value, const reference::Expectation& expected) {
  const Program& program = value.program;
  const auto is_sparse = [](const auto& parameter) { return parameter.sparse; };
  if (program.world <= 2 &&
      std::none_of(program.parameters.begin(), program.parameters.end(), is_sparse))
    return true;
  torch_model::Policies layout_alone;
  layout_alone.rounds_factor = layout_alone.divides_views = false;
  layout_alone.divides_sparse = false;
  layout_alone.divides_in_hooks = layout_alone.compresses_first = false;
  const Expected other = torch_model::run(program, value.torch, layout_alone);
  for (std::size_t s = 0; s < expected.steps.size(); ++s) {
    if (expected.steps[s].any_error) return true;  // the script ends here
    if (!other.knowledge_of(s).is_modelled || other.steps[s].any_error) return false;
    for (std::size_t r = 0; r < program.world; ++r) {
      for (std::size_t p = 0; p < program.parameters.size(); ++p) {
        const ExpectedGradient& one = expected.steps[s].ranks[r].gradients[p];
        const ExpectedGradient& two = other.steps[s].ranks[r].gradients[p];
        if (!one.known) continue;
        if (!two.known || one.defined != two.defined) return false;
        if (!one.defined) continue;
        const std::uint64_t count = reference::gradient_words(program.parameters[p]);
        for (std::uint64_t e = 0; e < count; ++e)
          if (expected.bits[one.offset + e] != other.bits[two.offset + e]) return false;
      }
    }
  }
  return true;
}

std::string ScriptWriter::tolerances() const {
  if (are_bits_certain(case_, expectation_))
    return "TOLERANCES = None  # every element has to have the bits that are expected\n\n";
  std::string out =
      "# At more than two ranks the last bits depend on the order of additions, which follows the\n"
      "# layout of buckets. This much of a difference is let pass.\n"
      "TOLERANCES = {\n";
  for (const auto& [parameter, largest] : largest_) {
    const bool halves = program_.options.hook == Hook::kFloat16;
    const DType dtype = halves ? DType::kFloat16 : program_.parameters[parameter].dtype;
    const double ulp = std::ldexp(1.0, -reference::format_of(dtype).mantissa_bits);
    out += fmt::format("    \"p{}\": {},\n", parameter, python_float(kRoundings * ulp * largest));
  }
  return out + "}\n\n";
}

std::string ScriptWriter::node_text(const std::vector<Node>& nodes, std::size_t index,
                                    std::size_t indent, const std::vector<bool>& ranks,
                                    Constants& constants) {
  const Node& node = nodes[index];
  std::vector<std::string> inputs;
  if (index > 0)
    for (const Input& input : node.inputs)
      inputs.push_back(input_text(nodes, index - 1 - input.back % index, input.slot));
  const std::string list = python_list(inputs, indent);
  switch (node.kind) {
    case Node::Kind::kScale:
      return fmt::format("(\"scale\", {}, {})", list, node.factor);
    case Node::Kind::kStop:
      return fmt::format("(\"stop\", {})", list);
    case Node::Kind::kDetach:
      return fmt::format("(\"detach\", {})", list);
    case Node::Kind::kSplit:
      return fmt::format("(\"split\", {})", list);
    case Node::Kind::kCheckpoint:
      return fmt::format("(\"checkpoint\", {}, {})", list,
                         nodes_text(node.body, indent + 4, ranks, constants));
    case Node::Kind::kSum:
      return fmt::format("(\"sum\", {})", list);
    case Node::Kind::kUse:
      break;
  }
  const auto count = static_cast<std::uint32_t>(program_.parameters.size());
  const std::uint32_t owner = reference::owner_of(program_, node.parameter % count);
  Constant& constant =
      constants[{owner, node.key, program_.parameters[owner].sparse ? node.entries : 0}];
  if (constant.name.empty()) {
    constant.name = fmt::format("c{}", constants.size() - 1);
    constant.is_used_by.assign(program_.world, false);
  }
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (ranks[r]) constant.is_used_by[r] = true;
  return fmt::format("(\"use\", {}, \"p{}\", \"{}\")", list, node.parameter % count, constant.name);
}

std::string ScriptWriter::nodes_text(const std::vector<Node>& nodes, std::size_t indent,
                                     const std::vector<bool>& ranks, Constants& constants) {
  std::string out = "[\n";
  for (std::size_t i = 0; i < nodes.size(); ++i)
    out += fmt::format("{:{}}{},  # {}\n", "", indent + 4,
                       node_text(nodes, i, indent + 4, ranks, constants), i);
  return out + std::string(indent, ' ') + "]";
}

std::vector<std::size_t> indices_of(const std::vector<bool>& is_set) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < is_set.size(); ++i)
    if (is_set[i]) indices.push_back(i);
  return indices;
}

std::string kind_text(PassKind kind) {
  if (kind == PassKind::kNoGrad) return "no_grad";
  return kind == PassKind::kSynced ? "synced" : "no_sync";
}

// Returns what a rank calls, in order, as a list of tuples. Values of parameters do not occur in a
// script, so it has no optimizer steps.
std::vector<std::string> calls_text(const reference::Replicated& options, PassKind kind,
                                    const reference::RankPass& pass) {
  using Kind = Call::Kind;
  std::vector<std::string> out;
  for (const Call& call : calls_of(options, kind, pass)) {
    if (call.kind == Kind::kZeroGrad) out.emplace_back("(\"zero_grad\",)");
    if (call.kind == Kind::kForward)
      out.push_back(fmt::format("(\"forward\", {}, \"{}\")", call.number,
                                pass.forwards[call.number].local ? "no_sync" : kind_text(kind)));
    if (call.kind == Kind::kEvaluate) out.emplace_back("(\"forward\", 0, \"no_grad\")");
    if (call.kind == Kind::kDrop)
      out.push_back(
          fmt::format("(\"drop\", [{}])",
                      fmt::join(indices_of(reference::dropped_outputs(pass, call.number)), ", ")));
    if (call.kind != Kind::kBackward) continue;
    const reference::Backward& backward = reference::backward_of(pass, call.number);
    if (backward.held)
      out.push_back(fmt::format("(\"held_backward\", {}, [{}])", backward.held_synced ? 1 : 0,
                                fmt::join(backward.roots, ", ")));
    else
      out.push_back(fmt::format("(\"backward\", [{}])",
                                fmt::join(reference::roots_of(pass, call.number), ", ")));
  }
  return out;
}

std::string ScriptWriter::pass_text(std::size_t step, const reference::RankPass& pass,
                                    const std::vector<bool>& ranks) {
  std::string out = fmt::format("{:12}{{\"keep_outputs\": {}, \"forwards\": [\n", "",
                                python_bool(pass.keep_outputs));
  for (const reference::Forward& forward : pass.forwards) {
    std::vector<std::string> outputs;
    for (const Input& output : forward.outputs)
      outputs.push_back(input_text(forward.nodes,
                                   forward.nodes.size() - 1 - output.back % forward.nodes.size(),
                                   output.slot));
    out += fmt::format("{:16}{{\"discard\": {}, \"nodes\": {},\n", "", python_bool(forward.discard),
                       nodes_text(forward.nodes, 17, ranks, constants_of_[step]));
    out += fmt::format("{:17}\"outputs\": {}}},\n", "", python_list(outputs, 28));
  }
  const PassKind kind = program_.steps[step].kind;
  const auto calls = calls_text(program_.options, kind, pass);
  std::string held;
  if (pass.hold_outputs)
    held = fmt::format("\"held\": ([{}], [{}]), ",
                       fmt::join(reference::held_outputs(kind, pass), ", "),
                       fmt::join(reference::held_outputs(kind, pass, true), ", "));
  return out + fmt::format("{:13}], {}\"order\": {}}},\n", "", held, python_list(calls, 24));
}

void ScriptWriter::write_steps() {
  steps_ =
      "# Rank r takes variants[r % len(variants)]. A node is (kind, inputs, ...), an input or an\n"
      "# output (node, slot). \"order\" lists what the rank calls, in order: a forward by its "
      "number,\n"
      "# a backward by the outputs, counted over all kept forwards, that it starts at. \"held\" "
      "lists\n"
      "# outputs that live on, of forwards under no_sync and of others; a backward of the next "
      "step "
      "may\n"
      "# start at these (indices into the first or the second list, modulo its length).\n"
      "STEPS = [\n";
  for (std::size_t s = 0; s < program_.steps.size(); ++s) {
    const reference::Step& step = program_.steps[s];
    constants_of_.emplace_back();
    const char* zero = step.zero_grad == reference::ZeroGrad::kUndefine ? "to none" : "to zeros";
    if (step.zero_grad == reference::ZeroGrad::kKeep) zero = "not";
    steps_ += fmt::format(
        "    {{  # step {}\n        \"kind\": \"{}\", \"zero_grad\": \"{}\",\n"
        "        \"variants\": [\n",
        s, kind_text(step.kind), zero);
    for (std::size_t v = 0; v < step.variants.size(); ++v) {
      std::vector<bool> ranks(program_.world);
      for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = r % step.variants.size() == v;
      steps_ += pass_text(s, step.variants[v], ranks);
    }
    steps_ += "        ],\n    },\n";
  }
  steps_ += "]\n\n";
}

void ScriptWriter::write_constants() {
  constants_ =
      "# By step and name: the elements of each rank, in row-major order; of a sparse parameter's "
      "use\n"
      "# the rows that it looks up, and their elements.\nCONSTANTS = [\n";
  for (std::size_t s = 0; s < program_.steps.size(); ++s) {
    constants_ += fmt::format("    {{  # step {}\n", s);
    for (const auto& [use, constant] : constants_of_[s]) {
      const reference::Parameter& parameter = program_.parameters[use.parameter];
      constants_ += fmt::format("        \"{}\": {{\n", constant.name);
      for (std::uint32_t r = 0; r < program_.world; ++r) {
        if (!constant.is_used_by[r]) continue;
        std::vector<double> values(reference::element_count(parameter));
        std::string rows;
        if (parameter.sparse) {
          const reference::Entries sent = reference::entries_of(
              program_, parameter, r, {program_.steps[s].key, use.key, use.entries}, 1);
          rows = fmt::format("[{}]", fmt::join(sent.rows, ", "));
          values = sent.values;
        } else {
          const reference::UseValues values_of_use(program_, parameter, r, program_.steps[s].key,
                                                   use.key);
          for (std::size_t e = 0; e < values.size(); ++e) values[e] = values_of_use.at(e);
        }
        note(program_, use.parameter, values);
        if (numbers_ > kMaxScriptNumbers) continue;
        const std::string list = python_floats(values, 15);
        constants_ += parameter.sparse ? fmt::format("            {}: ({}, {}),\n", r, rows, list)
                                       : fmt::format("            {}: {},\n", r, list);
      }
      constants_ += "        },\n";
    }
    constants_ += "    },\n";
  }
  constants_ += "]\n\n";
}

std::string ScriptWriter::by_rank(const std::vector<std::string>& items) const {
  const bool all_equal =
      std::all_of(items.begin(), items.end(), [&](const auto& item) { return item == items[0]; });
  if (all_equal) return fmt::format("every_rank({})", items[0]);
  return fmt::format("by_rank(\n                {})", fmt::join(items, ",\n                "));
}

std::string ScriptWriter::expected_calls(std::size_t step) const {
  std::vector<std::string> items;
  for (const ExpectedRankStep& rank : expectation_.steps[step].ranks) {
    std::vector<std::string> names;
    for (const std::uint32_t parameter : rank.parameters)
      names.push_back(fmt::format("p{}", parameter));
    const std::string list = fmt::format("{}", fmt::join(names, ", "));
    std::string what = "as one of its parameters is not ready as it should be";
    if (rank.error == reference::Error::kIncomplete) what = list + " got no gradient";
    if (rank.error == reference::Error::kReadyTwice) what = list + " ready twice";
    if (rank.error == reference::Error::kSecondBackward)
      what = "a second backward of a pass that is complete";
    if (rank.error == reference::Error::kUsageChanged)
      what = "not the parameters of the first pass (static graph): " + list;
    const bool own = rank.outcome == Outcome::kOwnError;
    if (own) items.push_back(fmt::format("(\"backward {}\", \"{}\")", rank.error_call, what));
    if (rank.outcome == Outcome::kSuccess) items.emplace_back("SUCCESS");
    if (rank.outcome == Outcome::kPeerError) items.emplace_back("PEER_ERROR");
    if (rank.outcome == Outcome::kSuccessOrPeerError) items.emplace_back("SUCCESS_OR_PEER_ERROR");
  }
  return by_rank(items);
}

std::string ScriptWriter::expected_gradient(const ExpectedRankStep& rank, std::size_t parameter) {
  if (parameter >= rank.gradients.size()) return "UNKNOWN";
  const ExpectedGradient& gradient = rank.gradients[parameter];
  if (!gradient.known) return "UNKNOWN";
  if (!gradient.defined) return "None";
  const reference::Parameter& record = program_.parameters[parameter];
  std::vector<double> values(reference::element_count(record));
  for (std::size_t e = 0; e < values.size(); ++e)
    values[e] = reference::to_double(record.dtype, expectation_.bits[gradient.offset + e]);
  note(program_, parameter, values);
  for (std::uint64_t word = values.size(); word < reference::gradient_words(record); ++word)
    values.push_back(static_cast<double>(expectation_.bits[gradient.offset + word]));  // its rows
  if (numbers_ > kMaxScriptNumbers) return "UNKNOWN";
  return python_floats(values, 16);
}

void ScriptWriter::write_expected() {
  expected_ =
      "# By step: \"calls\", where not all succeed, and what each parameter's gradient is after "
      "it.\n"
      "EXPECTED = [\n";
  for (std::size_t s = 0; s < expectation_.steps.size(); ++s) {
    const reference::ExpectedStep& step = expectation_.steps[s];
    expected_ += fmt::format("    {{  # step {}\n", s);
    if (step.any_error) expected_ += fmt::format("        \"calls\": {},\n", expected_calls(s));
    expected_ += "        \"gradients\": {\n";
    for (std::size_t p = 0; p < program_.parameters.size(); ++p) {
      if (reference::owner_of(program_, static_cast<std::uint32_t>(p)) != p) continue;
      std::vector<std::string> items;
      for (const ExpectedRankStep& rank : step.ranks) items.push_back(expected_gradient(rank, p));
      expected_ += fmt::format("            \"p{}\": {},\n", p, by_rank(items));
    }
    expected_ += "        },\n    },\n";
  }
  expected_ += "]\n\n";
}

}  // namespace

Result<std::string> python_script(const Case& given, std::string_view about) {
  Case c = given;
  normalize(c);
  if (const std::vector<std::string> lacks = obstacles(c); !lacks.empty())
    return failed(Status(Code::kInvalidArgument,
                         fmt::format("the case cannot be exported: a script has no means for {}",
                                     fmt::join(lacks, ", "))));
  return ScriptWriter(c, about).write();
}

}  // namespace lockstep::properties
