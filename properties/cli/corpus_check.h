// The command `corpus check`: runs every *.json below a folder on the subject, in the simulator and
// over Gloo as far as the subject has these lanes, several cases at once. All must pass.
// The command `corpus convert`: writes them anew, in the newest schema.
#pragma once

#include <string>

#include "properties/lane/lane.h"

namespace lockstep::properties {

struct CorpusCheckOptions {
  std::string folder = "properties/corpus";
  Subject subject;
  int jobs = 8;  // cases at once, which mostly wait over Gloo
};

// Prints a line a run, in the order of the files, and returns the program's exit code: that of the
// first run in this order that fails.
int run_corpus_check(const CorpusCheckOptions& options);

// Writes every case of the folder as this program writes cases, unless the file reads so already.
// Returns the exit code: if one of the files cannot be read, none is written.
int run_corpus_convert(const std::string& folder);

}  // namespace lockstep::properties
