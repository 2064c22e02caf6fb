// What the benchmark programs over Gloo share: the exit codes, the JSON file, and one line on
// standard error that says what failed.
//
// Exit codes: 0 for success, 1 for a usage error or another failure, 65 for wrong bits, 128 plus
// the signal's number after a signal.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::benchmarks {

// The options of every benchmark program.
struct Choice {
  std::vector<std::string> only;  // parts; if empty, all parts but `tiny` run
  std::vector<int> ranks = {2, 4};
  int repetitions = 0;  // 0 means each part's own default
  bool spoil = false;   // see Plan::spoil
  std::string commit;   // of this checkout; for the JSON file
  std::string library;  // what the benchmark is to load, if it loads something
};

// A benchmark that measures, prints its rows as they are ready, and stores them.
class Bench {
 public:
  virtual ~Bench() = default;
  virtual int run() = 0;                    // returns 0 or the program's exit code: see measure()
  virtual std::uint64_t wrong() const = 0;  // wrong elements in all rows
  virtual std::string to_json() const = 0;
};

// Reads the arguments, runs the benchmark that `make` returns for them, and writes the JSON file.
// The file is written whole or not at all. `library` is the file that the benchmark loads unless
// --library names another; without it there is no such option. Returns the exit code.
int run_program(int argc, char** argv, const std::string& about,
                const std::vector<std::string>& parts,
                const std::function<std::unique_ptr<Bench>(const Choice&)>& make,
                const std::string& library = "");

// Prints "NAME: TEXT" on standard error, where NAME is this program's, and returns the exit code of
// a failure.
int complain(const std::string& text);

}  // namespace lockstep::benchmarks
