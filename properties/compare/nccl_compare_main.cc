// nccl_compare: measures NCCL libraries side by side, and says what differs. ci/bench nccl runs it.
//
// Exit codes: 0 when everything was measured, 1 for input that cannot be used, 65 when elements
// were not as declared, 2 without anything to run NCCL on, 130 or 143 after a signal.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "properties/case/case_json.h"
#include "properties/compare/benchmark_page.h"
#include "properties/compare/bisect_case.h"
#include "properties/compare/side_by_side.h"
#include "properties/compare/stop.h"
#include "properties/compare/verdict.h"

namespace lockstep::properties {
namespace {

constexpr int kFailure = 1;
constexpr int kWrongBits = 65;
constexpr int kInconclusive = 2;
constexpr int kSignal = 128;

struct Choice {
  std::vector<std::string> versions;
  std::string cache = ".cache/nccl";
  std::string run_on;
  SideBySideSetup setup;
  std::vector<std::uint64_t> sizes = {1024, 16384, 262144, 4194304};
  std::vector<std::string> dtypes = {"float32", "bfloat16"};
  std::vector<std::string> only;
  double limit_percent = 2;
  bool is_unpinned = false;
  std::string json;
  std::string html;
  std::string bisect;  // a case; empty: no bisection
  std::string lockstep;
};

int complain(const std::string& text) {
  std::fprintf(stderr, "nccl_compare: %s\n", text.c_str());
  return kFailure;
}

int complain(const Status& status) { return complain(status.failure().detail); }

// The model of the machine's first NVIDIA GPU, from its driver; empty without one.
std::string gpu_model() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    std::ifstream file(entry.path() / "information");
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("Model:")) {
        const std::size_t at = line.find_first_not_of(" \t", 6);
        return at == std::string::npos ? std::string() : line.substr(at);
      }
  }
  return {};
}

void add_options(CLI::App& app, Choice& choice) {
  SideBySideSetup& setup = choice.setup;
  app.add_option("--versions", choice.versions,
                 "two libraries or more, the oldest first: versions of the cache (2.28.9), files "
                 "with a path, or NAME=FILE")
      ->delimiter(',')
      ->required();
  app.add_option("--cache", choice.cache, "the cache of ci/nccl")
      ->envname("LOCKSTEP_NCCL_CACHE")
      ->capture_default_str();
  app.add_option("--run-on", choice.run_on, "what NCCL runs on; the first that works if left out");
  app.add_option("--ranks", setup.ranks, "processes")->capture_default_str();
  app.add_option("--sizes", choice.sizes, "bytes of an operation")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--dtypes", choice.dtypes, "of plain sums")->delimiter(',')->capture_default_str();
  app.add_option("--rounds", setup.rounds, "in which the libraries take turns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--repetitions", setup.repetitions, "of each operation in a round")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--fault-rounds", setup.fault_rounds, "rounds with faults")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app.add_option("--timeout-ms", setup.timeout_ms, "of a group whose ranks have a fault")
      ->check(CLI::Range(100, 600000))
      ->capture_default_str();
  app.add_option("--only", choice.only, "operations, lifecycle, faults; all if left out")
      ->delimiter(',')
      ->check(CLI::IsMember({"operations", "lifecycle", "faults"}));
  app.add_flag("--unpinned", choice.is_unpinned,
               "let NCCL choose algorithm, protocol and channels; otherwise Ring, Simple and one");
  app.add_option("--limit", choice.limit_percent, "percent by which a time may differ")
      ->check(CLI::Range(0.1, 10000.0))
      ->capture_default_str();
  app.add_option("--bisect", choice.bisect,
                 "find the first library whose result differs from that of the first: a case file, "
                 "which lockstep replays, or a row of the report (abort, killed, ...)");
  app.add_option("--lockstep", choice.lockstep,
                 "the program that replays a case file; that of this build if left out");
  app.add_option("--commit", setup.commit, "of this checkout, for the JSON file");
  app.add_option("--json", choice.json, "write the results to this file, too");
  app.add_option("--html", choice.html, "write a page to this file, too");
}

// The program lockstep of the same build.
std::string usual_lockstep() {
  std::error_code ignored;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (own.parent_path().parent_path() / "lockstep").string();
}

int run_bisection(const Choice& choice) {
  BisectCase bisect{choice.bisect, choice.lockstep, choice.setup, choice.limit_percent / 100};
  if (bisect.lockstep.empty()) bisect.lockstep = usual_lockstep();
  const Result<Bisection> found = bisect_case(bisect);
  if (stop_signal() != 0) return kSignal + stop_signal();
  if (!found) {
    complain(found.error());
    return found.error().code() == Code::kIncomplete ? kInconclusive : kFailure;
  }
  std::fputs(to_text(bisect, *found).c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : complain("the result cannot be written");
}

// Writes to the file that an option names, if one does.
bool keep(const std::string& option, const std::string& file, const Result<std::string>& text) {
  if (file.empty()) return true;
  const Status status = text ? write_file(file, *text) : text.error();
  if (!status.ok()) complain(option + ": " + status.failure().detail);
  return status.ok();
}

// Fills in what the options say. Returns an error for what cannot be measured.
Status complete(Choice& choice) {
  SideBySideSetup& setup = choice.setup;
  auto libraries = find_libraries(choice.versions, choice.cache);
  if (!libraries) return libraries.error();
  setup.libraries = std::move(*libraries);
  setup.is_pinned = !choice.is_unpinned;
  const auto is_on = [&choice](const char* part) {
    return choice.only.empty() ||
           std::find(choice.only.begin(), choice.only.end(), part) != choice.only.end();
  };
  auto operations =
      make_operations(static_cast<std::uint32_t>(setup.ranks), choice.sizes, choice.dtypes);
  if (!operations) return operations.error();
  if (is_on("operations")) setup.operations = std::move(*operations);
  setup.has_lifecycle = is_on("lifecycle");
  if (!is_on("faults")) setup.faults.clear();
  auto network = nccl_setup();
  if (!network) return network.error();
  setup.network = std::move(*network);
  if (!setup.network.uses_plugin) std::erase(setup.faults, "reset");
  setup.progress = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  return {};
}

int run(Choice& choice) {
  if (const Status status = complete(choice); !status.ok()) return complain(status);
  catch_stop_signals();
  Result<Way> way = find_way(choice.run_on);
  if (!way) {
    complain(way.error());
    return kInconclusive;
  }
  choice.setup.way = std::move(*way);
  if (!choice.bisect.empty()) return run_bisection(choice);
  Result<ComparisonResults> results = run_side_by_side(choice.setup);
  if (stop_signal() != 0) return kSignal + stop_signal();
  if (!results) return complain(results.error());
  results->machine = this_machine(choice.setup.way.name == "gpu" ? gpu_model() : "");
  const double limit = choice.limit_percent / 100;
  std::fputs(to_text(*results, limit).c_str(), stdout);
  if (std::fflush(stdout) != 0) return complain("the report cannot be written");
  const bool is_kept = keep("--json", choice.json, to_json(*results));
  if (!keep("--html", choice.html, comparison_page(*results, limit)) || !is_kept) return kFailure;
  const std::uint64_t wrong = wrong_elements(*results);
  if (wrong == 0) return 0;
  complain(std::to_string(wrong) + " elements are not as declared");
  return kWrongBits;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Measures NCCL libraries side by side, and says what differs.", "nccl_compare");
  Choice choice;
  add_options(app, choice);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain(std::string(error.what()) + "; see --help");
  }
  return run(choice);
}

}  // namespace
}  // namespace lockstep::properties

int main(int argc, char** argv) {
  try {
    return lockstep::properties::parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    return lockstep::properties::complain(error.what());
  }
}
