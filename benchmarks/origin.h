// Where figures come from: what measured them, at which commit, on which machine. Every JSON file
// of a benchmark begins with it, so that figures of two machines are not compared. Threads: any.
// Nothing fails: what the machine does not tell is "unknown".
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::benchmarks {

// Returns an object with "benchmark", "commit" and "machine".
nlohmann::ordered_json origin_json(const std::string& benchmark, const std::string& commit);

}  // namespace lockstep::benchmarks
