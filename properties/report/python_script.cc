#include "properties/report/python_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "properties/case/capabilities.h"
#include "properties/case/describe.h"
#include "properties/case/fields.h"
#include "properties/lane/python_program.h"
#include "properties/report/python_parts.h"
#include "properties/subject/torch/model/hook_model.h"
#include "properties/subject/torch_subject.h"
#include "reducer/base/check.h"
#include "reference/arithmetic.h"
#include "reference/model.h"
#include "reference/model/engine.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::json;
using reference::DType;
using reference::ExpectedGradient;
using reference::ExpectedRankStep;
using Finalization = TorchOptions::Finalization;
using reference::Hook;
using reference::Outcome;
using reference::Program;

constexpr std::size_t kLineLength = 98;
constexpr double kRoundings = 16;  // the roundings that a tolerance accepts

// Lists what DistributedDataParallel cannot do, or what a script cannot express.
std::vector<std::string> obstacles(const Case& c) {
  using enum Capability;
  const Capabilities able = torch_capabilities(torch_model::kTestedVersions.back())
                                .without(Capabilities::of({kIgnored, kAbsent}))
                                .with(kState)
                                .with(kManualSync);
  std::vector<std::string> out = described(missing(c, able));
  if (!c.faults.faults.empty()) out.emplace_back("faults");
  if (c.switched.option != SwitchedOption::kNone)
    out.emplace_back("a second run with an option switched");
  const Program& program = c.program;
  // Such a script prepares the reducer by itself, as loops that call it do: a static pass counts
  // its forwards, and the search for unused parameters begins at the outputs of one forward.
  if (program.options.manual_sync && program.options.mode != reference::Mode::kPlain)
    out.emplace_back("manual sync with a search for unused parameters, or of a static graph");
  if (program.options.with_values) out.emplace_back("values of parameters");
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

// Appends the value, on one line if it fits there. `column`: where it begins. Each level is one
// column further in, so that no more than `indent` brackets follow a value.
void lay_out(const Json& value, std::size_t indent, std::size_t column, std::string& out) {
  const auto fits = [&](std::size_t at, std::size_t size) {
    return at + size + indent + 1 <= kLineLength;
  };
  const std::string line = value.dump();
  if (fits(column, line.size()) || !value.is_structured()) {
    out += line;
    return;
  }
  const bool holds_parts = std::any_of(value.begin(), value.end(),
                                       [](const Json& each) { return each.is_structured(); });
  out += value.is_array() ? "[" : "{";
  std::size_t at = column + 1;
  for (auto each = value.begin(); each != value.end(); ++each) {
    const std::string name = value.is_object() ? Json(each.key()).dump() + ": " : "";
    const std::size_t size = name.size() + (holds_parts ? 0 : each->dump().size() + 1);
    if (each != value.begin()) out += ",";
    if (each != value.begin() && (holds_parts || !fits(at, size))) {
      out += "\n" + std::string(indent + 1, ' ');
      at = indent + 1;
    }
    out += name;
    lay_out(*each, indent + 1, at + name.size(), out);
    at += size;
  }
  out += value.is_array() ? "]" : "}";
}

// The value of all ranks, or of each.
Json by_rank(Json items) {
  const bool all_equal =
      std::all_of(items.begin(), items.end(), [&](const Json& item) { return item == items[0]; });
  if (all_equal) return {{"every rank", std::move(items[0])}};
  return {{"by rank", std::move(items)}};
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
    Json steps = Json::array();
    Json expected = Json::array();
    for (std::size_t s = 0; s < program_.steps.size(); ++s) {
      steps.push_back(step(s));
      expected.push_back(expected_step(s));
    }
    if (numbers_ > kMaxScriptNumbers)
      return refused(
          fmt::format("the case cannot be exported: it has {} numbers, and a script at "
                      "most {}; make it small first (lockstep shrink)",
                      numbers_, kMaxScriptNumbers));
    const Json data = {{"world", program_.world},
                       {"options", options()},
                       {"first_bucket_bytes", program_.options.first_bucket_bytes},
                       {"hook", hook()},
                       {"ends_by_hand", case_.torch.finalization == Finalization::kAfter},
                       {"parameters", python_parameters(program_)},
                       {"buffers", buffers()},
                       {"steps", std::move(steps)},
                       {"expected", std::move(expected)},
                       {"tolerances", tolerances()}};
    std::string text;
    lay_out(data, 0, 0, text);
    return title() + kPythonImports +
           "\n\n# ---- the program, as data ----\n\nCASE = json.loads(r\"\"\"\n" + text +
           "\n\"\"\")\n\n" + model_text() + kPythonRunner;
  }

 private:
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
  Json options() const;
  Json hook() const;
  Json buffers() const;
  Json tolerances() const;
  Json step(std::size_t number);
  Json expected_step(std::size_t number);
  Json expected_call(const ExpectedRankStep& rank) const;
  Json expected_gradient(const ExpectedRankStep& rank, std::uint32_t parameter);
  void note(std::uint32_t parameter, const std::vector<double>& values);

  const Case& case_;
  const Program& program_;
  const std::string_view about_;
  const reference::Expectation expectation_;
  std::map<std::uint32_t, double> largest_;  // the largest magnitude, by owner
  std::uint64_t numbers_ = 0;
};

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
# In CASE, a node is [kind, inputs, ...], and an input or an output is [node, slot]. "calls" lists
# what a rank calls, in order, each with the number of its backward (-1: before all of them): a
# forward by its number, a backward by the outputs, counted over all kept forwards, that it starts
# from. "hold_outputs": the outputs live on, and a "held_backward" of the next step starts from
# them. "buffers" has the sizes of buffers, of ones, which the graph of each forward keeps for its
# backward. "sync_gradients" prepares the reducer for a backward, after forwards under no_sync.
# "constants" are those of each rank, in row-major order; of a sparse parameter's use they are
# the rows that it looks up, and their elements. Where "tolerances" is not null, the last bits
# depend on the order of additions, which follows the layout of buckets; so much of a difference is
# let pass.
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

Json ScriptWriter::options() const {
  const reference::Replicated& options = program_.options;
  Json out = python_options(options);
  if (!program_.buffers.empty()) out["broadcast_buffers"] = !options.keep_buffers;
  // Versions that lack these refuse them.
  for (const auto& [name, is_on] :
       {std::pair("batched_grad_copy", case_.torch.batched_grad_copy),
        {"lazy_bucket_allocation", case_.torch.lazy_bucket_allocation},
        {"skip_all_reduce_unused_params", case_.torch.skip_all_reduce_unused_params}})
    if (is_on) out[name] = true;
  const auto in_mib = [](std::uint64_t bytes) {
    return static_cast<double>(bytes) / (1024.0 * 1024.0);
  };
  if (options.last_bucket_bytes != 0)
    out["bucket_cap_mb_list"] = {in_mib(options.first_bucket_bytes), in_mib(options.bucket_bytes),
                                 in_mib(options.last_bucket_bytes)};
  return out;
}

// Their sizes. Those without elements change nothing.
Json ScriptWriter::buffers() const {
  Json out = Json::array();
  for (const reference::Buffer& buffer : program_.buffers)
    if (std::ranges::find(buffer.sizes, 0U) == buffer.sizes.end()) out.push_back(buffer.sizes);
  return out;
}

Json ScriptWriter::hook() const {
  if (program_.options.hook == Hook::kAllReduce) return "allreduce_hook";
  if (program_.options.hook == Hook::kFloat16) return "fp16_compress_hook";
  return nullptr;
}

void ScriptWriter::note(std::uint32_t parameter, const std::vector<double>& values) {
  numbers_ += values.size();
  double& largest = largest_[reference::owner_of(program_, parameter)];
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

Json ScriptWriter::tolerances() const {
  if (are_bits_certain(case_, expectation_)) return nullptr;
  Json out = Json::object();
  for (const auto& [parameter, largest] : largest_) {
    const bool halves = program_.options.hook == Hook::kFloat16;
    const DType dtype = halves ? DType::kFloat16 : program_.parameters[parameter].dtype;
    const double ulp = std::ldexp(1.0, -reference::format_of(dtype).mantissa_bits);
    out[fmt::format("p{}", parameter)] = kRoundings * ulp * largest;
  }
  return out;
}

// Steps that all ranks run alike are written once.
Json ScriptWriter::step(std::size_t number) {
  Json works = Json::array();
  Json constants = Json::array();
  for (std::uint32_t r = 0; r < program_.world && numbers_ <= kMaxScriptNumbers; ++r) {
    PythonStep step = python_step(program_, number, r);
    Json& of_rank = constants.emplace_back(Json::object());
    for (const PythonConstant& each : step.constants) {
      note(each.owner, each.elements);
      of_rank[each.name] = to_json(each);
    }
    const auto same = std::find_if(works.begin(), works.end(),
                                   [&](const Json& each) { return each.at("work") == step.work; });
    if (same == works.end())
      works.push_back({{"ranks", {r}}, {"work", std::move(step.work)}});
    else
      same->at("ranks").push_back(r);
  }
  return {{"works", std::move(works)}, {"constants", std::move(constants)}};
}

Json ScriptWriter::expected_call(const ExpectedRankStep& rank) const {
  if (rank.outcome == Outcome::kSuccess) return "success";
  if (rank.outcome == Outcome::kPeerError) return "fails, as another rank failed";
  if (rank.outcome == Outcome::kSuccessOrPeerError) return "success, or fails";
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
  return {rank.error_call, what};
}

Json ScriptWriter::expected_gradient(const ExpectedRankStep& rank, std::uint32_t parameter) {
  if (parameter >= rank.gradients.size() || numbers_ > kMaxScriptNumbers) return "unknown";
  const ExpectedGradient& gradient = rank.gradients[parameter];
  if (!gradient.known) return "unknown";
  if (!gradient.defined) return nullptr;
  const reference::Parameter& record = program_.parameters[parameter];
  std::vector<double> values(reference::element_count(record));
  for (std::size_t e = 0; e < values.size(); ++e)
    values[e] = reference::to_double(record.dtype, expectation_.bits[gradient.offset + e]);
  note(parameter, values);
  for (std::uint64_t word = values.size(); word < reference::gradient_words(record); ++word)
    values.push_back(static_cast<double>(expectation_.bits[gradient.offset + word]));  // its rows
  return python_numbers(values);
}

Json ScriptWriter::expected_step(std::size_t number) {
  const reference::ExpectedStep& step = expectation_.steps[number];
  Json calls = Json::array();
  for (const ExpectedRankStep& rank : step.ranks) calls.push_back(expected_call(rank));
  Json gradients = Json::object();
  for (std::uint32_t p = 0; p < program_.parameters.size(); ++p) {
    if (reference::owner_of(program_, p) != p) continue;
    Json items = Json::array();
    for (const ExpectedRankStep& rank : step.ranks) items.push_back(expected_gradient(rank, p));
    gradients[fmt::format("p{}", p)] = by_rank(std::move(items));
  }
  return {{"calls", by_rank(std::move(calls))},
          {"ends", step.any_error},
          {"gradients", std::move(gradients)}};
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
