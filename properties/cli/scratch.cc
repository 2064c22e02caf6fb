#include "properties/cli/scratch.h"

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <thread>

namespace lockstep::properties {

namespace fs = std::filesystem;

ScratchFolder::ScratchFolder() {
  std::error_code error;
  const fs::path system = fs::temp_directory_path(error);
  if (error) return;
  std::string path = (fs::absolute(system, error) / "lockstep-run-XXXXXX").string();
  if (error || ::mkdtemp(path.data()) == nullptr) return;
  path_ = path;
  if (const char* before = ::getenv("TMPDIR")) {
    before_ = before;
    had_before_ = true;
  }
  ::setenv("TMPDIR", path_.c_str(), 1);
}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  if (had_before_) {
    ::setenv("TMPDIR", before_.c_str(), 1);
  } else {
    ::unsetenv("TMPDIR");
  }
  // A rank whose worker was killed may live a moment longer, and create one more file.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    std::error_code error;
    fs::remove_all(path_, error);
    if (!error) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace lockstep::properties
