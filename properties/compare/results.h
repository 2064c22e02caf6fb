// What was measured over NCCL libraries side by side, and its form as a file.
//
// Threads: values; any thread. Failure: results_from_json() refuses a text that is not whole, or
// not of this schema, in one line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reducer/base/status.h"

namespace lockstep::properties {

// The machine that a result was measured on. Results of two machines are not compared.
struct Machine {
  std::string processor;
  unsigned processors = 0;
  std::string device;  // what NCCL ran on: the name of the GPU, or "played"; may be empty
  bool operator==(const Machine&) const = default;
  std::string to_text() const;
};
Machine this_machine(std::string device);

// One time, such as that of an operation or of making a communicator.
struct TimedResult {
  std::string name;
  std::vector<std::vector<double>> rounds_ms;  // of each round; a round has one value or more
  bool is_sum = false;                         // it has elements that can be wrong
  std::uint64_t elements = 0;                  // compared, over all ranks and rounds
  std::uint64_t wrong = 0;
};

// The bits of a sum, as one library made them.
struct BitsResult {
  std::string name;
  std::string hash;         // of all bits
  std::string explanation;  // the declared order that gives them
};

// What all ranks together sent for one operation.
struct MessagesResult {
  std::string name;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};

// What a surviving rank was told of a fault, and how long after it.
struct Told {
  int rank = 0;
  std::string code;  // "peer lost"; "nothing" if no error came
  std::string text;
  double after_ms = 0;
  bool operator==(const Told&) const = default;
};
struct FaultResult {
  std::string name;  // "killed"
  std::vector<std::vector<Told>> rounds;
  std::uint64_t wrong = 0;
};

struct LibraryResult {
  std::string name;
  std::string version;  // as the library reports it
  std::vector<TimedResult> times;
  std::vector<BitsResult> bits;
  std::vector<MessagesResult> messages;
  std::vector<FaultResult> faults;
  std::vector<std::string> lacks;     // functions that a part of the measurement needs
  std::vector<std::string> problems;  // what did not work, one line each
};

// Where two libraries' bits of one sum differ.
struct BitsDifference {
  std::string name;   // of the operation
  std::string dtype;  // "float32"
  std::uint64_t bytes = 0;
  std::string base;
  std::string other;
  std::uint64_t elements = 0;
  std::uint64_t differences = 0;
  std::uint64_t first = 0;  // the first element that differs
};

struct ComparisonResults {
  std::string commit;
  std::string ran_on;  // Way::label
  Machine machine;
  int ranks = 0;
  int rounds = 0;
  int repetitions = 0;
  bool is_pinned = true;
  std::vector<LibraryResult> libraries;
  std::vector<BitsDifference> differences;  // of neighbours in `libraries`
};

// What the file's field "benchmark" says.
constexpr const char* kNcclBenchmark = "nccl side by side";

std::string to_json(const ComparisonResults& results);
Result<ComparisonResults> results_from_json(const std::string& text);

// The number of wrong elements in all of it.
std::uint64_t wrong_elements(const ComparisonResults& results);

}  // namespace lockstep::properties
