// ScratchFolder: the folder for the temporary files of a run's processes. It lies below the
// system's temporary folder, belongs to this run, and is removed with its content when the run
// ends. Workers are killed when they hang and cannot clean up, so the process that started them
// does. If that is killed, too, the next run removes the folder: a lock in it says whether a
// process of its run is left.
//
// It changes TMPDIR, which the workers inherit. Create it before any of them, in a process without
// other threads.
// Failure: without a folder TMPDIR remains unchanged, and the code that needs a folder reports the
// error.
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
  std::string path_;  // empty if there is none
  int lock_ = -1;
  std::string before_;
  bool had_before_ = false;
};

}  // namespace lockstep::properties
