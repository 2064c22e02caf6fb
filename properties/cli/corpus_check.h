// The command `corpus check`: runs every *.json below a folder on the production reducer, in the
// simulator and over Gloo, several cases at once. All must pass.
#pragma once

#include <string>

namespace lockstep::properties {

struct CorpusCheckOptions {
  std::string folder = "properties/corpus";
  int jobs = 8;  // cases at once, which mostly wait over Gloo
};

// Prints a line a run, in the order of the files, and returns the program's exit code: that of the
// first run in this order that fails.
int run_corpus_check(const CorpusCheckOptions& options);

}  // namespace lockstep::properties
