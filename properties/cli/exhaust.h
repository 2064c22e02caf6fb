// exhaust: runs a small program in every order of its steps that can matter. See `lockstep exhaust
// --help`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/subject/subject.h"

namespace lockstep::properties {

struct ExhaustOptions {
  std::vector<std::string> programs;  // names of files in `folder`, or case files
  std::string folder = "properties/exhaust";
  Subject subject;
  std::string log = "lockstep-out/exhaust";  // a folder with a log for each program
  double seconds = 3600;                     // for each program
  int jobs = 1;                              // how many programs run at once
  double most = 2e7;                         // executions that are estimated
  std::string json;
  std::string out = "lockstep-out";  // the folder for failing cases
  std::string program;               // the name of this program in the replay command
};

// Each search goes on from its log. Returns 0 if every search is complete and found nothing, the
// exit code of the first failure, 2 if a search is not complete, and 130 after Ctrl-C.
int run_exhaust(const ExhaustOptions& options);

}  // namespace lockstep::properties
