// What a step costs of which nothing but the reduction of gradients is left: over real Gloo, in
// real processes, beside the floors that it stands on. See suite.h for what is measured, README.md
// for what is counted.
//
// Exit codes: 0 fine, 1 usage or a failure, 65 wrong bits, 128 and its number after a signal.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include "benchmarks/ranks.h"
#include "benchmarks/suite.h"

namespace lockstep::benchmarks {
namespace {

constexpr int kFailure = 1;
constexpr int kWrongBits = 65;

int complain(const std::string& text) {
  std::fprintf(stderr, "reducer_benchmark: %s\n", text.c_str());
  return kFailure;
}

// Runs it all. The JSON file is there when all of it is, or not at all.
int run(const Choice& choice, const std::string& json) {
  const std::string partial = json + ".partial";
  std::ofstream file;
  if (!json.empty()) file.open(partial);
  if (!file) return complain("--json: cannot write " + partial);
  catch_signals();
  Suite suite(choice);
  int code = suite.run();
  if (code == 0 && suite.report().wrong() != 0) {
    complain(std::to_string(suite.report().wrong()) + " elements are wrong");
    code = kWrongBits;
  }
  if (json.empty()) return code;
  file << suite.report().to_json();
  file.close();
  std::error_code error;
  if (code == 0 || code == kWrongBits) {
    if (file) std::filesystem::rename(partial, json, error);
    if (!file || error) code = complain("--json: cannot write " + json);
  }
  std::filesystem::remove(partial, error);
  return code;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("What reducing gradients costs over Gloo, in real processes on this machine.");
  Choice choice;
  std::string json;
  app.add_option("--only", choice.only, "parts of the suite; all but tiny when left out")
      ->check(CLI::IsMember(suite_parts()))
      ->delimiter(',');
  app.add_option("--ranks", choice.ranks, "processes; powers of two, so that averages are exact")
      ->check(CLI::IsMember(std::vector<int>{2, 4, 8}))
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--repetitions", choice.repetitions, "of each step, instead of the part's own")
      ->check(CLI::Range(1, 100000));
  app.add_option("--json", json, "write the rows to this file, too");
  app.add_flag("--spoil", choice.spoil,
               "positive control: change an element of each result before it is checked");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain(std::string(error.what()) + "; see --help");
  }
  return run(choice, json);
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  try {
    return lockstep::benchmarks::parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "reducer_benchmark: %s\n", error.what());
    return 1;
  }
}
