#include "properties/compare/benchmark_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "properties/compare/verdict.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kAnyLimit = 0.02;  // of a change, which figures do not have

Result<BenchmarkResults> refused(std::string text) {
  return failed(Status(Code::kInvalidArgument, std::move(text)));
}

std::string group_of(const Json& row) {
  return fmt::format("{}, {} ranks", row.at("workload").get<std::string>(),
                     row.at("ranks").get<int>());
}

std::optional<Ratio> ratio_of_rows(const std::vector<double>& base,
                                   const std::vector<double>& other) {
  const bool can_be_compared =
      !base.empty() && base.size() == other.size() &&
      std::all_of(base.begin(), base.end(), [](double value) { return value > 0; });
  if (!can_be_compared) return std::nullopt;
  return ratio_of(base, other);
}

// Rows with the same base stand beside each other.
void add_reducer(const Json& json, BenchmarkResults& out) {
  std::map<std::string, std::vector<double>> times;  // by group and mode
  const auto key = [](const Json& row, const std::string& mode) {
    return group_of(row) + "/" + mode;
  };
  for (const Json& row : json.at("rows"))
    times[key(row, row.at("mode"))] = row.at("each_ms").get<std::vector<double>>();
  for (const Json& row : json.at("rows")) {
    const std::string base = row.at("base");
    const std::string mode = row.at("mode");
    Figure figure{group_of(row) + ", beside " + base,
                  mode,
                  row.at("ms"),
                  "ms",
                  base,
                  std::nullopt,
                  std::nullopt};
    if (mode != base) figure.ratio = ratio_of_rows(times[key(row, base)], times[key(row, mode)]);
    figure.wrong = row.at("wrong").get<std::uint64_t>();
    out.figures.push_back(std::move(figure));
  }
  for (const Json& row : json.at("overlap"))
    out.figures.push_back({group_of(row) + ", exposed after the last gradient", row.at("buckets"),
                           row.at("exposed_ms"), "ms", "", std::nullopt,
                           row.at("wrong").get<std::uint64_t>()});
}

void add_torch(const Json& json, BenchmarkResults& out) {
  for (const Json& row : json.at("rows"))
    out.figures.push_back({group_of(row), row.at("mode"), row.at("ms"), "ms", "PyTorch's reducer",
                           ratio_of_rows(row.at("torch_each_ms").get<std::vector<double>>(),
                                         row.at("each_ms").get<std::vector<double>>()),
                           row.at("wrong").get<std::uint64_t>()});
}

// Google Benchmark names an argument with all that its values mean.
std::string arguments_text(const std::string& arguments) {
  constexpr const char* kModes = "no_reducer0_plain1_dynamic2:";
  constexpr const char* kNames[] = {"no reducer", "plain", "dynamic"};
  if (!arguments.starts_with(kModes)) return arguments;
  const auto mode = static_cast<std::size_t>(arguments.back() - '0');
  return mode < std::size(kNames) ? kNames[mode] : arguments;
}

// The repetitions of one of Google Benchmark's benchmarks.
struct HookRun {
  std::string family;     // "HookOfSmallParameters"
  std::string arguments;  // "elements:16"
  std::string unit;
  std::vector<double> times;
  std::map<std::string, std::vector<double>> counters;  // "hook_ns"
};

std::vector<HookRun> hook_runs(const Json& json) {
  constexpr const char* kSuffix = "/manual_time";
  std::vector<HookRun> runs;
  for (const Json& row : json.at("benchmarks")) {
    const bool counts =
        row.value("run_type", "iteration") == "iteration" && !row.value("error_occurred", false);
    if (!counts) continue;
    std::string name = row.at("name");
    if (name.ends_with(kSuffix)) name.resize(name.size() - std::string(kSuffix).size());
    const std::size_t slash = name.find('/');
    const std::string family = name.substr(0, slash);
    const std::string arguments =
        slash == std::string::npos ? family : arguments_text(name.substr(slash + 1));
    // Repetitions may be interleaved with those of others.
    auto run = std::find_if(runs.begin(), runs.end(), [&](const HookRun& each) {
      return each.family == family && each.arguments == arguments;
    });
    if (run == runs.end()) {
      runs.push_back({family, arguments, row.value("time_unit", "ns"), {}, {}});
      run = runs.end() - 1;
    }
    run->times.push_back(row.at("real_time"));
    for (const char* const counter : {"hook_ns", "copy_ns", "bucket_ns"})
      if (row.contains(counter)) run->counters[counter].push_back(row.at(counter));
  }
  return runs;
}

// A hook stands beside the copy in it, and a backward beside one without a reducer.
void add_hooks(const Json& json, BenchmarkResults& out) {
  const std::vector<HookRun> runs = hook_runs(json);
  for (const HookRun& run : runs) {
    Figure figure{run.family, run.arguments, median_of(run.times), run.unit, "", {}, {}};
    const auto counter = [&run](const char* name) {
      const auto found = run.counters.find(name);
      return found == run.counters.end() ? std::vector<double>() : found->second;
    };
    for (const char* const name : {"hook_ns", "bucket_ns"}) {
      const std::vector<double> values = counter(name);
      if (values.empty()) continue;
      figure.value = median_of(values);
      figure.unit = "ns";
    }
    if (const std::vector<double> copies = counter("copy_ns"); !copies.empty()) {
      figure.base = "the copy alone";
      figure.ratio = ratio_of_rows(copies, counter("hook_ns"));
    }
    const auto bare = std::find_if(runs.begin(), runs.end(), [&run](const HookRun& each) {
      return each.family == run.family && each.arguments == "no reducer";
    });
    if (bare != runs.end()) {
      figure.base = "the same without a reducer";
      if (&*bare != &run) figure.ratio = ratio_of_rows(bare->times, run.times);
    }
    out.figures.push_back(std::move(figure));
  }
}

Result<BenchmarkResults> nccl_from(const std::string& text) {
  const Result<ComparisonResults> results = results_from_json(text);
  if (!results) return failed(results.error());
  BenchmarkResults out{"nccl", results->commit, results->machine, {}};
  for (const PairVerdict& pair : compare_all(*results, kAnyLimit))
    for (const TimeComparison& time : pair.times) {
      if (!time.has_other) continue;
      Figure figure{
          pair.base + " -> " + pair.other, time.name, time.other_ms, "ms", pair.base, {}, {}};
      if (time.is_judged) figure.ratio = time.ratio;
      if (time.is_sum) figure.wrong = time.other_wrong;
      out.figures.push_back(std::move(figure));
    }
  return out;
}

Machine machine_from(const Json& machine) {
  return {machine.at("processor"), machine.at("processors"), machine.value("device", "")};
}

BenchmarkResults parts_from(const Json& json) {
  BenchmarkResults out;
  if (json.contains("context")) {
    const Json& context = json.at("context");
    out.benchmark = "hooks";
    out.commit = context.value("commit", "");
    out.machine = {context.at("processor"), context.at("num_cpus"), ""};
    add_hooks(json, out);
    return out;
  }
  out.benchmark = json.at("benchmark");
  out.commit = json.at("commit");
  out.machine = machine_from(json.at("machine"));
  (out.benchmark == "torch" ? add_torch : add_reducer)(json, out);
  return out;
}

}  // namespace

Result<BenchmarkResults> benchmark_from_json(const std::string& text) {
  if (text.find_first_not_of(" \n\r\t") == std::string::npos) return refused("it is empty");
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded())
    return refused("it is no whole JSON file: was the run that wrote it interrupted?");
  const std::string name = json.is_object() ? json.value("benchmark", "") : "";
  const bool is_hooks = json.is_object() && json.contains("context") && json.contains("benchmarks");
  if (name == kNcclBenchmark) return nccl_from(text);
  if (name != "reducer" && name != "torch" && !is_hooks)
    return refused("it holds no results of ci/bench: write them with --json");
  try {
    BenchmarkResults out = parts_from(json);
    if (out.figures.empty()) return refused("it has no figures");
    return out;
  } catch (const Json::exception& error) {
    return refused(
        fmt::format("a field is missing or wrong ({}): was it written by an older "
                    "ci/bench?",
                    error.what()));
  }
}

}  // namespace lockstep::properties
