#include "properties/lane/python_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "properties/case/calls.h"
#include "reference/arithmetic.h"
#include "reference/model/engine.h"
#include "reference/sparse.h"
#include "reference/values.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::json;
using reference::Node;
using reference::PassKind;
using reference::Program;

const char* dtype_name(reference::DType dtype) {
  switch (dtype) {
    case reference::DType::kFloat64:
      return "float64";
    case reference::DType::kFloat16:
      return "float16";
    case reference::DType::kBFloat16:
      return "bfloat16";
    case reference::DType::kComplex64:
      return "complex64";
    case reference::DType::kFloat32:
      break;
  }
  return "float32";
}

const char* kind_name(PassKind kind) {
  if (kind == PassKind::kSynced) return "synced";
  return kind == PassKind::kNoSync ? "no_sync" : "no_grad";
}

const char* zero_name(reference::ZeroGrad zero) {
  if (zero == reference::ZeroGrad::kUndefine) return "to none";
  return zero == reference::ZeroGrad::kFill ? "to zeros" : "not";
}

class StepWriter {
 public:
  StepWriter(const Program& program, std::size_t step, std::uint32_t rank)
      : program_(program),
        number_(step),
        step_(program.steps[step]),
        rank_(rank),
        kind_(kind_of(step_, reference::pass_of(step_, rank))) {}

  PythonStep write() {
    const reference::RankPass& pass = reference::pass_of(step_, rank_);
    Json forwards = Json::array();
    for (const reference::Forward& forward : pass.forwards) {
      Json outputs = Json::array();
      const std::size_t count = forward.nodes.size();
      for (const reference::Input& output : forward.outputs)
        outputs.push_back(input(forward.nodes, count - 1 - output.back % count, output.slot));
      forwards.push_back({{"discard", forward.discard},
                          {"nodes", nodes(forward.nodes)},
                          {"outputs", std::move(outputs)}});
    }
    Json work = {{"kind", kind_name(kind_)},
                 {"keep_outputs", pass.keep_outputs},
                 {"hold_outputs", pass.hold_outputs},
                 {"forwards", std::move(forwards)},
                 {"calls", calls(pass)}};
    if (pass.absent) work["absent"] = true;
    return {std::move(work), std::move(constants_)};
  }

 private:
  static Json input(const std::vector<Node>& nodes, std::size_t index, std::uint32_t slot) {
    return {index, nodes[index].kind == Node::Kind::kSplit ? slot % 2 : 0};
  }

  // Returns what the rank calls, in order. Each call is a list: its name, Call::place, and what the
  // call needs. Outputs are counted over all kept forwards. A wrapper has no check_complete(), and
  // only scripts have sync_gradients().
  Json calls(const reference::RankPass& pass) const {
    Json calls = Json::array();
    for (const Call& call : calls_of(program_.options, kind_, pass)) {
      switch (call.kind) {
        case Call::Kind::kZeroGrad:
          calls.push_back({"zero_grad", call.place, zero_name(step_.zero_grad)});
          break;
        case Call::Kind::kForward: {
          const bool is_local = pass.forwards[call.number].local ||
                                (program_.options.manual_sync && kind_ == PassKind::kSynced);
          calls.push_back({"forward", call.place, call.number,
                           kind_name(is_local ? PassKind::kNoSync : kind_)});
          break;
        }
        case Call::Kind::kEvaluate:
          calls.push_back({"forward", call.place, 0, kind_name(PassKind::kNoGrad)});
          break;
        case Call::Kind::kOptimizerStep:
          calls.push_back({"optimizer_step", call.place});
          break;
        case Call::Kind::kDrop:
          calls.push_back(
              {"drop", call.place, numbers_of(reference::dropped_outputs(pass, call.number))});
          break;
        case Call::Kind::kBackward:
          calls.push_back(backward(pass, call));
          break;
        case Call::Kind::kSyncGradients:
          calls.push_back({"sync_gradients", call.place});
          break;
        case Call::Kind::kCheckComplete:
          break;
      }
    }
    return calls;
  }

  // A call starts from kept outputs of the step, or from those that the rank holds of an earlier
  // one.
  Json backward(const reference::RankPass& pass, const Call& call) const {
    const reference::Backward& backward = reference::backward_of(pass, call.number);
    if (!backward.held) return {"backward", call.place, reference::roots_of(pass, call.number)};
    return {"held_backward", call.place, held_roots(backward)};
  }

  // The rank holds outputs of the last step that it has not skipped.
  reference::Outputs held_roots(const reference::Backward& backward) const {
    for (std::size_t step = number_; step-- > 0;) {
      const reference::Step& before = program_.steps[step];
      const reference::RankPass& pass = reference::pass_of(before, rank_);
      if (!pass.skip) return reference::held_roots(kind_of(before, pass), pass, backward);
    }
    return {};
  }

  static Json numbers_of(const std::vector<bool>& is_set) {
    Json numbers = Json::array();
    for (std::size_t i = 0; i < is_set.size(); ++i)
      if (is_set[i]) numbers.push_back(i);
    return numbers;
  }

  Json nodes(const std::vector<Node>& records) {
    Json out = Json::array();
    for (std::size_t i = 0; i < records.size(); ++i) {
      Json inputs = Json::array();
      if (i > 0)
        for (const reference::Input& each : records[i].inputs)
          inputs.push_back(input(records, i - 1 - each.back % i, each.slot));
      out.push_back(node(records[i], std::move(inputs)));
    }
    return out;
  }

  Json node(const Node& record, Json inputs) {
    switch (record.kind) {
      case Node::Kind::kSum:
        return {"sum", std::move(inputs)};
      case Node::Kind::kScale:
        return {"scale", std::move(inputs), record.factor};
      case Node::Kind::kStop:
        return {"stop", std::move(inputs)};
      case Node::Kind::kDetach:
        return {"detach", std::move(inputs)};
      case Node::Kind::kSplit:
        return {"split", std::move(inputs)};
      case Node::Kind::kCheckpoint:
        return {"checkpoint", std::move(inputs), nodes(record.body)};
      case Node::Kind::kUse:
        break;
    }
    const auto count = static_cast<std::uint32_t>(program_.parameters.size());
    const std::uint32_t parameter = record.parameter % count;
    return {"use", std::move(inputs), fmt::format("p{}", parameter),
            constant(reference::owner_of(program_, parameter), record)};
  }

  // The name of the constant in this step.
  std::string constant(std::uint32_t owner, const Node& use) {
    const reference::Parameter& parameter = program_.parameters[owner];
    const std::uint32_t entries = parameter.sparse ? use.entries : 0;
    const auto [place, is_new] =
        names_.try_emplace({owner, use.key, entries}, fmt::format("c{}", names_.size()));
    if (!is_new) return place->second;
    PythonConstant& constant = constants_.emplace_back();
    constant.name = place->second;
    constant.owner = owner;
    if (parameter.sparse) {
      reference::Entries sent =
          reference::entries_of(program_, parameter, rank_, {step_.key, use.key, entries}, 1);
      constant.rows = std::move(sent.rows);
      constant.elements = std::move(sent.values);
    } else {
      constant.elements.resize(reference::value_count(parameter));
      reference::UseValues(program_, parameter, rank_, step_.key, use.key)
          .read(constant.elements.data(), constant.elements.size());
    }
    return place->second;
  }

  const Program& program_;
  const std::size_t number_;
  const reference::Step& step_;
  const std::uint32_t rank_;
  const PassKind kind_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::string> names_;
  std::vector<PythonConstant> constants_;
};

// The dimensions in the order in which they lie in memory, as reference::dimensions_in_memory(). It
// is the usual one if those with several elements are in order, because DistributedDataParallel
// refuses some parameters in which only the others are not.
std::vector<std::uint32_t> memory_of(const reference::Parameter& parameter) {
  const std::vector<std::uint32_t> memory = reference::dimensions_in_memory(parameter);
  std::vector<std::uint32_t> visible = memory;
  std::erase_if(visible, [&](std::uint32_t each) { return parameter.sizes[each] <= 1; });
  if (!std::is_sorted(visible.begin(), visible.end())) return memory;
  std::vector<std::uint32_t> usual(parameter.sizes.size());
  std::iota(usual.begin(), usual.end(), 0u);
  return usual;
}

}  // namespace

PythonStep python_step(const Program& program, std::size_t step, std::uint32_t rank) {
  return StepWriter(program, step, rank).write();
}

Json python_parameters(const Program& program) {
  Json out = Json::array();
  for (std::uint32_t i = 0; i < program.parameters.size(); ++i) {
    const reference::Parameter& parameter = program.parameters[i];
    const std::string name = fmt::format("p{}", i);
    if (const std::uint32_t owner = reference::owner_of(program, i); owner != i) {
      out.push_back({{"name", name}, {"same_as", fmt::format("p{}", owner)}});
      continue;
    }
    out.push_back({{"name", name},
                   {"dtype", dtype_name(parameter.dtype)},
                   {"shape", parameter.sizes},
                   {"memory", memory_of(parameter)},
                   {"requires_grad", !parameter.frozen},
                   {"sparse", parameter.sparse}});
  }
  return out;
}

Json python_options(const reference::Replicated& options) {
  constexpr double kBytesPerMiB = 1024.0 * 1024.0;
  Json out = {{"find_unused_parameters", options.mode == reference::Mode::kDynamic},
              {"static_graph", options.mode == reference::Mode::kStatic},
              {"gradient_as_bucket_view", options.views},
              {"bucket_cap_mb", static_cast<double>(options.bucket_bytes) / kBytesPerMiB}};
  // Wrappers hand on what they are given: PyTorch's has no such option.
  if (options.repeated_hooks) out["repeated_hooks"] = true;
  return out;
}

Json python_numbers(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double value : values) {
    if (std::isfinite(value))
      out.push_back(value);
    else if (std::isnan(value))
      out.push_back("nan");
    else
      out.push_back(value > 0 ? "inf" : "-inf");
  }
  return out;
}

Json to_json(const PythonConstant& constant) {
  Json elements = python_numbers(constant.elements);
  if (!constant.rows) return elements;
  return {{"rows", *constant.rows}, {"elements", std::move(elements)}};
}

}  // namespace lockstep::properties
