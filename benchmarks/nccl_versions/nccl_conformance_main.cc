// Probes versions of NCCL on a machine without a GPU, and compares them. `ci/nccl conformance`
// calls it.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "benchmarks/nccl_versions/conformance_report.h"

namespace lockstep::benchmarks {
namespace {

constexpr const char* kOwnNetwork = "Lockstep";
constexpr int kUsage = 1;
constexpr int kContradicts = 2;

struct Options {
  std::string cache;
  std::string stubs;
  ProbeOptions probe;
  std::string json;
  std::vector<std::string> versions;
};

int complain(const std::string& what) {
  std::fprintf(stderr, "nccl_conformance: %s\n", what.c_str());
  return kUsage;
}

Result<NcclColumn> look_at(const Options& options, const std::string& version) {
  const std::string folder = options.cache + "/" + version;
  NcclColumn column;
  column.name = version;
  Result<LibraryProbe> library = probe_library(folder + "/lib/libnccl.so.2", options.probe);
  if (!library) return failed(std::move(library.error()));
  column.library = std::move(*library);
  Result<HeaderLayout> header = measure_header(folder + "/include", options.stubs);
  if (!header) return failed(std::move(header.error()));
  column.header = std::move(*header);
  return column;
}

int run(const Options& options) {
  // NCCL looks for an address while it makes an id; every machine has this interface.
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  for (const char* const name : {"NCCL_DEBUG", "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_CONF_FILE"})
    ::unsetenv(name);
  std::vector<NcclColumn> columns;
  for (const std::string& version : options.versions) {
    Result<NcclColumn> column = look_at(options, version);
    if (!column) return complain("NCCL " + version + ": " + column.error().failure().detail);
    columns.push_back(std::move(*column));
  }
  const NcclReport report = report_on(columns, kOwnNetwork);
  std::fputs(report.markdown.c_str(), stdout);
  if (!options.json.empty()) {
    std::ofstream json(options.json);
    json << report.json;
    json.close();
    if (!json) return complain(fmt::format("cannot write '{}'", options.json));
  }
  for (const std::string& problem : report.problems) complain(problem);
  return report.problems.empty() ? 0 : kContradicts;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  lockstep::benchmarks::Options options;
  CLI::App app("Compares versions of NCCL without a GPU", "nccl_conformance");
  app.add_option("--cache", options.cache, "the folder with VERSION/lib and VERSION/include")
      ->required();
  app.add_option("--stubs", options.stubs,
                 "the folder with the headers of CUDA that nccl.h includes")
      ->required();
  app.add_option("--plugin", options.probe.own_plugin, "libnccl-net-lockstep.so")->required();
  app.add_option("--empty-plugin", options.probe.empty_plugin,
                 "a libnccl-net-NAME.so without a table")
      ->required();
  app.add_option("--limit", options.probe.limit_seconds, "seconds for each call")
      ->check(CLI::Range(1, 600))
      ->capture_default_str();
  app.add_option("--json", options.json, "write a report to this file");
  app.add_option("version", options.versions, "folders of the cache, in order")->required();
  CLI11_PARSE(app, argc, argv);
  return lockstep::benchmarks::run(options);
}
