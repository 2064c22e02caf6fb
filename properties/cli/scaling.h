// `lockstep scaling`: how much the reducer sends, and how long it takes, with up to 1,024 ranks in
// the simulator (properties/lane/scaling.h). Returns the program's exit code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::properties {

struct ScalingOptions {
  std::vector<std::uint32_t> ranks = {8, 64, 256, 1024};
  std::string json;
  std::string html;
};

CLI::App* add_scaling(CLI::App& app, ScalingOptions& options);

// 0, or 66 if a job did not end as it should, or 1 if a report cannot be written.
int run_scaling(ScalingOptions options);

}  // namespace lockstep::properties
