#include "benchmarks/program.h"

#include <errno.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include "benchmarks/ranks.h"

namespace lockstep::benchmarks {
namespace {

constexpr int kFailure = 1;
constexpr int kWrongBits = 65;

// A device, a pipe or a link is written to; no file takes its place.
bool is_replaced(const std::string& file) {
  std::error_code ignored;
  const auto there = std::filesystem::symlink_status(file, ignored);
  return !std::filesystem::exists(there) || std::filesystem::is_regular_file(there);
}

int run(Bench& bench, const std::string& json) {
  const std::string partial = is_replaced(json) ? json + ".partial" : json;
  std::ofstream file;
  if (!json.empty()) file.open(partial);
  if (!file) return complain("--json: cannot write " + partial);
  catch_signals();
  int code = bench.run();
  if (code == 0 && bench.wrong() != 0) {
    complain(std::to_string(bench.wrong()) + " elements are wrong");
    code = kWrongBits;
  }
  if (json.empty()) return code;
  file << bench.to_json();
  file.close();
  std::error_code error;
  if (code == 0 || code == kWrongBits) {
    if (file && partial != json) std::filesystem::rename(partial, json, error);
    if (!file || error) code = complain("--json: cannot write " + json);
  }
  if (partial != json) std::filesystem::remove(partial, error);
  return code;
}

int parse_and_run(int argc, char** argv, const std::string& about,
                  const std::vector<std::string>& parts,
                  const std::function<std::unique_ptr<Bench>(const Choice&)>& make,
                  const std::string& library) {
  CLI::App app(about);
  Choice choice;
  choice.library = library;
  std::string json;
  app.add_option("--only", choice.only, "parts of the suite; all but tiny when left out")
      ->check(CLI::IsMember(parts))
      ->delimiter(',');
  app.add_option("--ranks", choice.ranks, "processes; powers of two, so that averages are exact")
      ->check(CLI::IsMember(std::vector<int>{2, 4, 8}))
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--repetitions", choice.repetitions, "of each step, instead of the part's own")
      ->check(CLI::Range(1, 100000));
  app.add_option("--json", json, "write the rows to this file, too");
  app.add_option("--commit", choice.commit, "of this checkout, for the JSON file");
  if (!library.empty())
    app.add_option("--library", choice.library, "the module to measure beside")
        ->check(CLI::ExistingFile);
  app.add_flag("--spoil", choice.spoil,
               "positive control: change an element of each result before it is checked");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain(std::string(error.what()) + "; see --help");
  }
  return run(*make(choice), json);
}

}  // namespace

int complain(const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, text.c_str());
  return kFailure;
}

int run_program(int argc, char** argv, const std::string& about,
                const std::vector<std::string>& parts,
                const std::function<std::unique_ptr<Bench>(const Choice&)>& make,
                const std::string& library) {
  try {
    return parse_and_run(argc, argv, about, parts, make, library);
  } catch (const std::exception& error) {
    return complain(error.what());
  }
}

}  // namespace lockstep::benchmarks
