#include "properties/cli/demo.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "properties/cli/interrupt.h"
#include "properties/cli/output.h"
#include "properties/compare/temporary_folder.h"
#include "properties/oracle/verdict.h"
#include "properties/process/terminal.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

bool say(const std::string& text) {
  tell(text + "\n");
  return after_telling(0) == 0;
}

// Prints the command as a user types it, runs it, and returns its exit code; 128 and more if a
// signal ended it, and -1 if it did not start.
int run_lockstep(const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::string program = fs::read_symlink("/proc/self/exe", error).string();
  std::string line = "$ lockstep";
  std::vector<std::string> all = {program};
  for (const std::string& each : arguments) {
    line += " " + each;
    all.push_back(each);
  }
  if (!say(line)) return -1;
  std::vector<char*> pointers;
  for (std::string& each : all) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  pid_t pid = -1;
  if (::posix_spawn(&pid, program.c_str(), nullptr, nullptr, pointers.data(), environ) != 0)
    return -1;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The shrunk case that a run of fuzz has left in the folder.
std::string found_case(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& each : fs::directory_iterator(folder, error))
    if (each.path().extension() == ".json" && each.path().stem().extension().empty())
      return each.path().string();
  return {};
}

int ended_otherwise(const char* step, int code) {
  if (interrupted() || code == 130) return 130;
  remark(fmt::format("demo: {} ended with exit code {}, which it should not", step, code));
  return 1;
}

constexpr const char* kBug =
    "From 2021 to 2024 PyTorch's reducer had this bug (pytorch#54981, mended by #124193): a "
    "backward\n"
    "under no_sync did not mark the parameters that it used. If no rank used one of them in the\n"
    "synced pass, each rank kept its own sum, without an error. Lockstep's reducer with that bug\n"
    "planted in it is the subject seeded:R01. First the search:\n";

constexpr const char* kFound =
    "\nThe fuzzer found a program of training on which the ranks end with other gradients than "
    "the\n"
    "model, and made it small. The same case again, by one command:\n";

constexpr const char* kMended = "\nAnd the same case on the reducer without that bug:\n";

constexpr const char* kOwn =
    "\nYour own reducer:\n"
    "  a wrapper in Python (`def wrap(module, **options)` in mine.py):\n"
    "    lockstep fuzz --subject python:mine.py:wrap --time 60\n"
    "  a reducer in C or C++, behind the functions of lockstep_subject.h:\n"
    "    c++ -std=c++20 -O2 -shared -fPIC mine.cc -o libmine.so\n"
    "    lockstep fuzz --subject ./libmine.so --time 60";

}  // namespace

int run_demo() {
  const TemporaryFolder folder;
  if (folder.path().empty()) {
    remark(fmt::format("demo: no temporary folder can be made ({}): name another one in TMPDIR",
                       std::strerror(errno)));
    return 1;
  }
  if (!say(kBug)) return 1;
  const std::string subject = "seeded:R01";
  int code = run_lockstep({"fuzz", "--subject", subject, "--lane", "sim", "--seed", "5", "--time",
                           "60", "--fresh", "--out", folder.path()});
  const std::string file = found_case(folder.path());
  if (code != static_cast<int>(Failing::kWrongBits) || file.empty())
    return ended_otherwise("the search", code);
  if (!say(kFound)) return 1;
  code = run_lockstep({"replay", file, "--lane", "sim", "--subject", subject});
  if (code != static_cast<int>(Failing::kWrongBits)) return ended_otherwise("the replay", code);
  if (!say(kMended)) return 1;
  code = run_lockstep({"replay", file, "--lane", "sim", "--subject", "reducer"});
  if (code != 0) return ended_otherwise("the replay without the bug", code);
  return say(kOwn) ? 0 : 1;
}

}  // namespace lockstep::properties
