#include "properties/lane/rank_json.h"

#include <nlohmann/json.hpp>

namespace lockstep::properties {
namespace {

using Json = nlohmann::json;

Json to_record(const Status& status) {
  if (status.ok()) return nullptr;
  const std::string bytes = encode(status.failure());
  return Json::binary(std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
}

Status to_status(const Json& json) {
  if (json.is_null()) return {};
  const auto& bytes = json.get_binary();
  return decode_failure(std::string(bytes.begin(), bytes.end()));
}

Json to_record(const std::vector<FailedCall>& calls) {
  Json json = Json::array();
  for (const FailedCall& each : calls) json.push_back({each.step, each.generation, each.error});
  return json;
}

std::vector<FailedCall> to_calls(const Json& json) {
  std::vector<FailedCall> calls;
  for (const Json& each : json) calls.push_back({each.at(0), each.at(1), each.at(2)});
  return calls;
}

Json to_record(const ObservedStep& step) {
  Json gradients = Json::array();
  for (const ObservedGradient& g : step.gradients)
    gradients.push_back({g.defined, g.same_storage, g.offset, g.shares_with, g.byte_in_storage});
  Json collectives = Json::array();
  for (const ObservedCollective& c : step.collectives)
    collectives.push_back({static_cast<int>(c.op), c.bucket, c.count, static_cast<int>(c.dtype),
                           c.sequence, c.launched_us, c.completed_us, c.reducer});
  Json hooks = Json::array();
  for (const ObservedHook& hook : step.hooks) hooks.push_back({hook.parameter, hook.launched});
  return {step.step,
          step.begin_us,
          step.end_us,
          to_record(step.status),
          step.failed_call,
          step.poisoned,
          step.launched,
          gradients,
          collectives,
          step.hook_order,
          step.rebuilt_order,
          step.state,
          hooks,
          step.generation,
          step.is_destroyed};
}

ObservedStep to_step(const Json& json) {
  ObservedStep step;
  step.step = json.at(0);
  step.begin_us = json.at(1);
  step.end_us = json.at(2);
  step.status = to_status(json.at(3));
  step.failed_call = json.at(4);
  step.poisoned = json.at(5);
  step.launched = json.at(6);
  for (const Json& g : json.at(7))
    step.gradients.push_back({g.at(0), g.at(1), g.at(2), g.at(3), g.at(4)});
  for (const Json& c : json.at(8)) {
    ObservedCollective collective;
    collective.op = static_cast<ObservedCollective::Op>(c.at(0).get<int>());
    collective.bucket = c.at(1);
    collective.count = c.at(2);
    collective.dtype = static_cast<DType>(c.at(3).get<int>());
    collective.sequence = c.at(4);
    collective.launched_us = c.at(5);
    collective.completed_us = c.at(6);
    collective.reducer = c.at(7);
    step.collectives.push_back(collective);
  }
  step.hook_order = json.at(9).get<std::vector<std::uint32_t>>();
  step.rebuilt_order = json.at(10).get<std::vector<std::uint32_t>>();
  step.state = json.at(11).get<std::vector<std::uint64_t>>();
  for (const Json& hook : json.at(12)) step.hooks.push_back({hook.at(0), hook.at(1)});
  step.generation = json.at(13);
  step.is_destroyed = json.at(14);
  return step;
}

}  // namespace

std::string to_bytes(const RankObservation& observation, const faults::Fired& fired) {
  Json steps = Json::array();
  for (const ObservedStep& step : observation.steps) steps.push_back(to_record(step));
  Json ending = Json::array();
  for (const ObservedStep& step : observation.ending) ending.push_back(to_record(step));
  Json records = Json::array();
  for (const ObservedFlightRecord& each : observation.records)
    records.push_back({each.generation, each.group, to_text(each.record)});
  Json refusals = Json::array();
  for (const ObservedRefusal& each : observation.refusals)
    refusals.push_back({to_record(each.status), to_record(each.next_collective), each.next_sequence,
                        each.keeps_state});
  const Json json = {to_record(observation.construction),
                     steps,
                     observation.bits,
                     to_record(observation.recovery),
                     to_record(observation.failed_joins),
                     observation.finished,
                     fired.counts,
                     to_record(observation.joining),
                     ending,
                     records,
                     observation.unproven,
                     observation.leaked_bytes,
                     observation.shrunk,
                     observation.shrunk_by_nccl,
                     observation.planted.reached,
                     observation.planted.triggered,
                     observation.lacking,
                     observation.wrong_padding,
                     refusals,
                     to_record(observation.failed_end_joins),
                     fired.in_state,
                     observation.waited_s};
  std::string bytes;
  Json::to_cbor(json, bytes);
  return bytes;
}

bool from_bytes(const std::string& bytes, RankObservation& observation, faults::Fired& fired) {
  try {
    const Json json = Json::from_cbor(bytes);
    observation.construction = to_status(json.at(0));
    for (const Json& step : json.at(1)) observation.steps.push_back(to_step(step));
    observation.bits = json.at(2).get<std::vector<std::uint64_t>>();
    observation.recovery = to_status(json.at(3));
    observation.failed_joins = to_calls(json.at(4));
    observation.finished = json.at(5);
    fired.counts = json.at(6);
    observation.joining = to_status(json.at(7));
    for (const Json& step : json.at(8)) observation.ending.push_back(to_step(step));
    for (const Json& each : json.at(9)) {
      Result<FlightRecord> record = read_flight_record(each.at(2).get<std::string>());
      if (!record) return false;
      observation.records.push_back({each.at(0), each.at(1), std::move(*record)});
    }
    observation.unproven = json.at(10);
    observation.leaked_bytes = json.at(11);
    observation.shrunk = json.at(12);
    observation.shrunk_by_nccl = json.at(13);
    observation.planted = {json.at(14), json.at(15)};
    observation.lacking = json.at(16);
    observation.wrong_padding = json.at(17);
    for (const Json& each : json.at(18))
      observation.refusals.push_back(
          {to_status(each.at(0)), to_status(each.at(1)), each.at(2), each.at(3)});
    observation.failed_end_joins = to_calls(json.at(19));
    fired.in_state = json.at(20);
    observation.waited_s = json.at(21);
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

std::string to_text(const RankRequest& request) {
  Json joining;
  if (request.joining) {
    Json recoveries = Json::array();
    for (const reference::Recovery& each : request.joining->recoveries)
      recoveries.push_back({each.before_step, each.survivors});
    joining = {recoveries, to_text(request.joining->resume)};
  }
  return Json({request.case_text, request.rank, request.directory, request.subject,
               request.detailed, request.is_nccl, request.net_plan, request.address, joining,
               request.program})
      .dump();
}

RankRequest rank_request_from(const std::string& text) {
  const Json json = Json::parse(text);
  RankRequest request = {json.at(0), json.at(1), json.at(2), json.at(3), json.at(4),
                         json.at(5), json.at(6), json.at(7), {},         json.at(9)};
  const Json& joining = json.at(8);
  if (joining.is_null()) return request;
  request.joining.emplace();
  for (const Json& each : joining.at(0))
    request.joining->recoveries.push_back(
        {each.at(0), each.at(1).get<std::vector<std::uint32_t>>()});
  request.joining->resume = resume_from(joining.at(1));
  return request;
}

std::string to_text(const Resume& resume) {
  return Json({resume.recover, resume.step, resume.roster.generation, resume.roster.members})
      .dump();
}

Resume resume_from(const std::string& text) {
  const Json json = Json::parse(text);
  Resume resume;
  resume.recover = json.at(0);
  resume.step = json.at(1);
  resume.roster.generation = json.at(2);
  resume.roster.members = json.at(3).get<std::vector<std::uint32_t>>();
  return resume;
}

std::string to_text(const std::vector<faults::Fault>& faults) {
  Json json = Json::array();
  for (const faults::Fault& each : faults)
    json.push_back({static_cast<int>(each.kind), each.rank, each.step, each.site, each.duration_us,
                    each.peer, each.at});
  return json.dump();
}

std::optional<std::vector<faults::Fault>> faults_from(const std::string& text) {
  try {
    std::vector<faults::Fault> faults;
    for (const Json& each : Json::parse(text))
      faults.push_back({static_cast<faults::Kind>(each.at(0).get<std::uint8_t>()), each.at(1),
                        each.at(2), each.at(3), each.at(4), each.at(5), each.at(6)});
    return faults;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string to_text(const Arrival& arrival) {
  return Json({arrival.finished, arrival.next_step}).dump();
}

std::optional<Arrival> arrival_from(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  const bool is_arrival =
      json.is_array() && json.size() == 2 && json[0].is_boolean() && json[1].is_number_unsigned();
  if (!is_arrival) return std::nullopt;
  return Arrival{json[0], json[1]};
}

}  // namespace lockstep::properties
