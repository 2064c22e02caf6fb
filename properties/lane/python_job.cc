#include "properties/lane/python_job.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "properties/lane/python_program.h"
#include "reference/arithmetic.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::json;
using reference::Program;

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

std::string python_job(const Case& c, const Expected& expectation, const RankRequest& request,
                       const std::string& group) {
  const Program& program = c.program;
  Json steps = Json::array();
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    PythonStep step = python_step(program, s, request.rank);
    Json constants = Json::object();
    for (const PythonConstant& each : step.constants) constants[each.name] = to_json(each);
    step.work["constants"] = std::move(constants);
    steps.push_back(std::move(step.work));
  }
  return Json{{"rank", request.rank},
              {"world", program.world},
              {"folder", request.directory},
              {"group", group},
              {"key", program.key},
              {"timeout_ms", gloo_timeout_ms(c)},
              {"options", python_options(program.options)},
              {"first_bucket_bytes", program.options.first_bucket_bytes},
              {"parameters", python_parameters(program)},
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
    observation.waited_s = json.at("waited_s");
    for (const Json& step : json.at("steps"))
      if (!read_step(step, program, observation)) return false;
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

}  // namespace lockstep::properties
