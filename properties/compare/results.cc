#include "properties/compare/results.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

namespace lockstep::properties {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

// More digits than the clock and the machine can measure would only look exact.
double six_decimals(double value) { return std::round(value * 1e6) / 1e6; }

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

Json json_of(const TimedResult& time) {
  Json rounds = Json::array();
  for (const auto& round : time.rounds_ms) {
    Json values = Json::array();
    for (const double value : round) values.push_back(six_decimals(value));
    rounds.push_back(std::move(values));
  }
  Json out = {{"name", time.name}, {"rounds_ms", rounds}};
  if (time.is_sum) out.update({{"elements", time.elements}, {"wrong", time.wrong}});
  return out;
}

Json json_of(const FaultResult& fault) {
  Json rounds = Json::array();
  for (const auto& round : fault.rounds) {
    Json told = Json::array();
    for (const Told& each : round)
      told.push_back({{"rank", each.rank},
                      {"code", each.code},
                      {"text", each.text},
                      {"after_ms", six_decimals(each.after_ms)}});
    rounds.push_back(std::move(told));
  }
  return {{"name", fault.name}, {"rounds", rounds}, {"wrong", fault.wrong}};
}

Json json_of(const LibraryResult& library) {
  Json times = Json::array();
  for (const TimedResult& time : library.times) times.push_back(json_of(time));
  Json bits = Json::array();
  for (const BitsResult& each : library.bits)
    bits.push_back({{"name", each.name}, {"hash", each.hash}, {"explanation", each.explanation}});
  Json messages = Json::array();
  for (const MessagesResult& each : library.messages)
    messages.push_back({{"name", each.name}, {"messages", each.messages}, {"bytes", each.bytes}});
  Json faults = Json::array();
  for (const FaultResult& fault : library.faults) faults.push_back(json_of(fault));
  return {{"name", library.name},   {"version", library.version},  {"times", times},
          {"bits", bits},           {"messages", messages},        {"faults", faults},
          {"lacks", library.lacks}, {"problems", library.problems}};
}

TimedResult timed_from(const Json& json) {
  TimedResult out;
  out.name = json.at("name");
  out.rounds_ms = json.at("rounds_ms").get<std::vector<std::vector<double>>>();
  out.is_sum = json.contains("wrong");
  if (out.is_sum) {
    out.elements = json.at("elements");
    out.wrong = json.at("wrong");
  }
  return out;
}

FaultResult fault_from(const Json& json) {
  FaultResult out;
  out.name = json.at("name");
  out.wrong = json.at("wrong");
  for (const Json& round : json.at("rounds")) {
    std::vector<Told> told;
    for (const Json& each : round)
      told.push_back({each.at("rank"), each.at("code"), each.at("text"), each.at("after_ms")});
    out.rounds.push_back(std::move(told));
  }
  return out;
}

LibraryResult library_from(const Json& json) {
  LibraryResult out;
  out.name = json.at("name");
  out.version = json.at("version");
  for (const Json& time : json.at("times")) out.times.push_back(timed_from(time));
  for (const Json& bits : json.at("bits"))
    out.bits.push_back({bits.at("name"), bits.at("hash"), bits.at("explanation")});
  // Results of before have none.
  for (const Json& each : json.value("messages", Json::array()))
    out.messages.push_back({each.at("name"), each.at("messages"), each.at("bytes")});
  for (const Json& fault : json.at("faults")) out.faults.push_back(fault_from(fault));
  out.lacks = json.at("lacks").get<std::vector<std::string>>();
  out.problems = json.at("problems").get<std::vector<std::string>>();
  return out;
}

Result<ComparisonResults> unreadable(const std::string& text) {
  return failed(Status(Code::kInvalidArgument, text));
}

ComparisonResults comparison_from(const Json& json) {
  ComparisonResults out;
  out.commit = json.at("commit");
  out.ran_on = json.at("ran_on");
  const Json& machine = json.at("machine");
  out.machine = {machine.at("processor"), machine.at("processors"), machine.at("device")};
  out.ranks = json.at("ranks");
  out.rounds = json.at("rounds");
  out.repetitions = json.at("repetitions");
  out.is_pinned = json.at("is_pinned");
  for (const Json& library : json.at("libraries")) out.libraries.push_back(library_from(library));
  for (const Json& each : json.at("differences"))
    out.differences.push_back({each.at("name"), each.at("dtype"), each.at("bytes"), each.at("base"),
                               each.at("other"), each.at("elements"), each.at("differences"),
                               each.at("first")});
  return out;
}

}  // namespace

std::string Machine::to_text() const {
  return fmt::format("{} x {}{}", processors, processor, device.empty() ? "" : ", " + device);
}

Machine this_machine(std::string device) {
  return {processor_name(), std::thread::hardware_concurrency(), std::move(device)};
}

std::string to_json(const ComparisonResults& results) {
  Json libraries = Json::array();
  for (const LibraryResult& library : results.libraries) libraries.push_back(json_of(library));
  Json differences = Json::array();
  for (const BitsDifference& each : results.differences)
    differences.push_back({{"name", each.name},
                           {"dtype", each.dtype},
                           {"bytes", each.bytes},
                           {"base", each.base},
                           {"other", each.other},
                           {"elements", each.elements},
                           {"differences", each.differences},
                           {"first", each.first}});
  const Json out = {{"benchmark", kNcclBenchmark},
                    {"schema", kSchema},
                    {"commit", results.commit},
                    {"ran_on", results.ran_on},
                    {"machine",
                     {{"processor", results.machine.processor},
                      {"processors", results.machine.processors},
                      {"device", results.machine.device}}},
                    {"ranks", results.ranks},
                    {"rounds", results.rounds},
                    {"repetitions", results.repetitions},
                    {"is_pinned", results.is_pinned},
                    {"libraries", libraries},
                    {"differences", differences}};
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<ComparisonResults> results_from_json(const std::string& text) {
  if (text.find_first_not_of(" \n\r\t") == std::string::npos) return unreadable("it is empty");
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded())
    return unreadable("it is no whole JSON file: was the run that wrote it interrupted?");
  if (!json.is_object() || json.value("benchmark", "") != kNcclBenchmark)
    return unreadable("it holds no results of ci/bench nccl");
  if (json.value("schema", 0) != kSchema)
    return unreadable(fmt::format("it has schema {}, and this program reads {}",
                                  json.value("schema", 0), kSchema));
  try {
    return comparison_from(json);
  } catch (const Json::exception& error) {
    return unreadable(fmt::format("a field is missing or wrong ({})", error.what()));
  }
}

std::uint64_t wrong_elements(const ComparisonResults& results) {
  std::uint64_t wrong = 0;
  for (const LibraryResult& library : results.libraries) {
    for (const TimedResult& time : library.times) wrong += time.wrong;
    for (const FaultResult& fault : library.faults) wrong += fault.wrong;
  }
  return wrong;
}

}  // namespace lockstep::properties
