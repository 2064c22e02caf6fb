#include "benchmarks/origin.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace lockstep::benchmarks {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

nlohmann::ordered_json origin_json(const std::string& benchmark, const std::string& commit) {
  return {{"benchmark", benchmark},
          {"commit", commit},
          {"machine",
           {{"processor", processor_name()}, {"processors", std::thread::hardware_concurrency()}}}};
}

}  // namespace lockstep::benchmarks
