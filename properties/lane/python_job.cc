#include "properties/lane/python_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "properties/case/calls.h"
#include "reference/arithmetic.h"
#include "reference/model/engine.h"
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

// The calls of one rank in one step, and the constants of its uses.
class StepWriter {
 public:
  StepWriter(const Program& program, std::size_t step, std::uint32_t rank)
      : program_(program), number_(step), step_(program.steps[step]), rank_(rank) {}

  Json write() {
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
    return {{"kind", kind_name(step_.kind)},
            {"keep_outputs", pass.keep_outputs},
            {"hold_outputs", pass.hold_outputs},
            {"forwards", std::move(forwards)},
            {"calls", calls(pass)},
            {"constants", std::move(constants_)}};
  }

 private:
  static Json input(const std::vector<Node>& nodes, std::size_t index, std::uint32_t slot) {
    return {index, nodes[index].kind == Node::Kind::kSplit ? slot % 2 : 0};
  }

  // Returns what the rank calls, in order. Each call is a list: its name, Call::place, and what the
  // call needs. Outputs are counted over all kept forwards. A wrapper has no sync_gradients() and
  // no check_complete().
  Json calls(const reference::RankPass& pass) const {
    Json calls = Json::array();
    for (const Call& call : calls_of(program_.options, step_.kind, pass)) {
      switch (call.kind) {
        case Call::Kind::kZeroGrad:
          calls.push_back({"zero_grad", call.place, zero_name(step_.zero_grad)});
          break;
        case Call::Kind::kForward: {
          const bool is_local = pass.forwards[call.number].local;
          calls.push_back({"forward", call.place, call.number,
                           kind_name(is_local ? PassKind::kNoSync : step_.kind)});
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
      if (!pass.skip) return reference::held_roots(before.kind, pass, backward);
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
            constant(reference::owner_of(program_, parameter), record.key)};
  }

  // The name of the constant in this step.
  std::string constant(std::uint32_t owner, std::uint32_t key) {
    const auto [place, is_new] =
        names_.try_emplace({owner, key}, fmt::format("c{}", names_.size()));
    if (is_new) {
      const reference::Parameter& parameter = program_.parameters[owner];
      std::vector<double> values(reference::value_count(parameter));
      reference::UseValues(program_, parameter, rank_, step_.key, key)
          .read(values.data(), values.size());
      constants_[place->second] = std::move(values);
    }
    return place->second;
  }

  const Program& program_;
  const std::size_t number_;
  const reference::Step& step_;
  const std::uint32_t rank_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> names_;  // by owner and key
  Json constants_ = Json::object();
};

Json parameters_of(const Program& program) {
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
                   {"memory", python_memory(parameter)},
                   {"requires_grad", !parameter.frozen},
                   {"sparse", false}});
  }
  return out;
}

// The options, by the names that DistributedDataParallel has for them.
Json options_of(const reference::Replicated& options) {
  constexpr double kBytesPerMiB = 1024.0 * 1024.0;
  return {{"find_unused_parameters", options.mode == reference::Mode::kDynamic},
          {"static_graph", options.mode == reference::Mode::kStatic},
          {"gradient_as_bucket_view", options.views},
          {"bucket_cap_mb", static_cast<double>(options.bucket_bytes) / kBytesPerMiB}};
}

// The steps after which all ranks recover, the number of those that can be told, and whether all
// collectives have ended after them.
Json plan_of(const Expected& expectation) {
  Json recovers_after = Json::array();
  bool all_ended = true;
  std::size_t end = 0;
  for (; end < expectation.steps.size() && expectation.knowledge_of(end).is_modelled; ++end) {
    const reference::ExpectedStep& step = expectation.steps[end];
    if (step.any_error) recovers_after.push_back(end);
    all_ended =
        step.any_error || (all_ended && !expectation.knowledge_of(end).leaves_pass_unfinished);
  }
  return {{"recovers_after", std::move(recovers_after)}, {"end", end}, {"all_ended", all_ended}};
}

Status status_from(const Json& json) {
  if (json.is_null()) return {};
  return Status(Code::kInternal, json.get<std::string>());
}

std::uint64_t mask_of(reference::DType dtype) {
  const unsigned bits = 8 * reference::size_of(dtype);
  return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
}

// Reads one gradient. Returns false if it is not one of the parameter.
bool read_gradient(const Json& json, const reference::Parameter& parameter,
                   RankObservation& observation, ObservedGradient& gradient) {
  gradient.defined = !json.is_null();
  if (!gradient.defined) return true;
  gradient.offset = observation.bits.size();
  const std::uint64_t mask = mask_of(parameter.dtype);
  for (const Json& each : json)
    observation.bits.push_back(static_cast<std::uint64_t>(each.get<std::int64_t>()) & mask);
  return observation.bits.size() - gradient.offset == reference::gradient_words(parameter);
}

bool read_step(const Json& json, const Program& program, RankObservation& observation) {
  ObservedStep& step = observation.steps.emplace_back();
  step.step = json.at("step");
  if (step.step >= program.steps.size()) return false;
  step.begin_us = json.at("begin_us");
  step.end_us = json.at("end_us");
  step.status = status_from(json.at("error"));
  step.failed_call = json.at("failed_call");
  const Json& gradients = json.at("gradients");
  if (!step.status.ok()) return true;
  if (gradients.size() != program.parameters.size()) return false;
  step.gradients.resize(gradients.size());
  for (std::size_t p = 0; p < gradients.size(); ++p)
    if (!read_gradient(gradients[p], program.parameters[p], observation, step.gradients[p]))
      return false;
  return true;
}

}  // namespace

std::vector<std::uint32_t> python_memory(const reference::Parameter& parameter) {
  const std::vector<std::uint32_t> memory = reference::dimensions_in_memory(parameter);
  std::vector<std::uint32_t> visible = memory;
  std::erase_if(visible, [&](std::uint32_t each) { return parameter.sizes[each] <= 1; });
  if (!std::is_sorted(visible.begin(), visible.end())) return memory;
  std::vector<std::uint32_t> usual(parameter.sizes.size());
  std::iota(usual.begin(), usual.end(), 0u);
  return usual;
}

std::string python_job(const Case& c, const Expected& expectation, const RankRequest& request,
                       const std::string& group) {
  const Program& program = c.program;
  Json steps = Json::array();
  for (std::size_t s = 0; s < program.steps.size(); ++s)
    steps.push_back(StepWriter(program, s, request.rank).write());
  return Json{{"rank", request.rank},
              {"world", program.world},
              {"folder", request.directory},
              {"group", group},
              {"key", program.key},
              {"timeout_ms", c.timeout_ms == 0 ? kDefaultTimeoutMs : c.timeout_ms},
              {"options", options_of(program.options)},
              {"first_bucket_bytes", program.options.first_bucket_bytes},
              {"parameters", parameters_of(program)},
              {"steps", std::move(steps)},
              {"plan", plan_of(expectation)}}
      .dump();
}

std::string python_resume(const Expected& expectation, const Resume& resume) {
  return Json{{"recover", resume.recover},
              {"step", resume.step},
              {"generation", resume.roster.generation},
              {"members", resume.roster.members},
              {"plan", plan_of(expectation)}}
      .dump();
}

bool read_python_report(const std::string& text, const Program& program,
                        RankObservation& observation) {
  try {
    const Json json = Json::parse(text);
    observation.construction = status_from(json.at("construction"));
    observation.recovery = status_from(json.at("recovery"));
    observation.finished = json.at("finished");
    for (const Json& step : json.at("steps"))
      if (!read_step(step, program, observation)) return false;
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

}  // namespace lockstep::properties
