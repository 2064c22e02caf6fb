// What the benchmark programs over Gloo have in common: exit codes, the JSON file, one line about
// what went wrong.
//
// Exit codes: 0 fine, 1 usage or a failure, 65 wrong bits, 128 and its number after a signal.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::benchmarks {

// What every one of them can be asked for.
struct Choice {
  std::vector<std::string> only;  // parts; empty: all but tiny
  std::vector<int> ranks = {2, 4};
  int repetitions = 0;  // 0: as many as each part has by itself
  bool spoil = false;   // see Plan
};

// Something that measures, prints rows as they come, and keeps them.
class Bench {
 public:
  virtual ~Bench() = default;
  virtual int run() = 0;                    // 0, or the exit code of the program: see measure()
  virtual std::uint64_t wrong() const = 0;  // elements, of all rows
  virtual std::string to_json() const = 0;
};

// Reads the arguments, runs what `make` made for them, and writes the JSON file: when all of it is
// there, or not at all. Returns the exit code.
int run_program(int argc, char** argv, const std::string& about,
                const std::vector<std::string>& parts,
                const std::function<std::unique_ptr<Bench>(const Choice&)>& make);

// "NAME: TEXT" on standard error, with this program's name; returns the exit code of a failure.
int complain(const std::string& text);

}  // namespace lockstep::benchmarks
