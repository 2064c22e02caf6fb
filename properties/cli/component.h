// component: fuzzes parts of Lockstep by themselves. See `lockstep component --help`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/subject/subject.h"

namespace CLI {
class App;
}

namespace lockstep::properties {

struct ComponentOptions {
  std::vector<std::string> names;  // of components, or `all`; without one, the command lists them
  std::uint64_t seed = 1;
  std::uint64_t situations = 0;        // of each component; 0: as many as the time allows
  double seconds = 10;                 // for all components together
  std::vector<std::uint32_t> choices;  // of the one situation that is judged; empty: many are drawn
  bool has_choices = false;
  std::string subject = "reducer";
  std::string json;
  std::string program;  // the name of this program in the command that replays
};

CLI::App* add_component(CLI::App& app, ComponentOptions& options);

// Returns 0 if nothing failed, the exit code of the first failure, and 130 after Ctrl-C.
int run_component(const ComponentOptions& options);

}  // namespace lockstep::properties
