// ScratchFolder: where the processes of a run put their temporary files: a folder of the run's own,
// below the system's one, which goes with all that is in it when the run ends. Workers are killed
// when they hang and cannot tidy up behind themselves, so the process that started them does.
//
// It changes TMPDIR, which they inherit. Make it before any of them, in a process without other
// threads.
// Failure: without a folder TMPDIR stays as it is, and whoever needs one says what is wrong.
#pragma once

#include <string>

namespace lockstep::properties {

class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

 private:
  std::string path_;  // empty: none
  std::string before_;
  bool had_before_ = false;
};

}  // namespace lockstep::properties
