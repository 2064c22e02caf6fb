// benchmark_page: makes a page of the JSON files that ci/bench wrote: of one run, or of several
// runs over commits. ci/bench runs it.
//
// Exit codes: 0 when the page was written, 1 otherwise, with one line.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "properties/case/case_json.h"
#include "properties/compare/benchmark_page.h"

namespace lockstep::properties {
namespace {

constexpr std::size_t kMostBytes = std::size_t{256} << 20;

int complain(const std::string& text) {
  std::fprintf(stderr, "benchmark_page: %s\n", text.c_str());
  return 1;
}

Result<std::string> page_of(const std::vector<std::string>& files) {
  std::vector<NamedRun> runs;
  for (const std::string& file : files) {
    const Result<std::string> text = read_file(file, kMostBytes);
    if (!text) return failed(text.error());
    Result<BenchmarkResults> results = benchmark_from_json(*text);
    if (!results)
      return failed(Status(Code::kInvalidArgument, file + ": " + results.error().failure().detail));
    runs.push_back({file, std::move(*results)});
  }
  return runs.size() == 1 ? benchmark_page(runs.front().results) : history_page(runs);
}

int run(int argc, char** argv) {
  CLI::App app("Makes a page of the JSON files that ci/bench wrote.", "benchmark_page");
  std::vector<std::string> files;
  std::string html;
  app.add_option("files", files,
                 "results; several of one benchmark, the oldest first, give a "
                 "history")
      ->required();
  app.add_option("--html", html, "the file for the page")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain(std::string(error.what()) + "; see --help");
  }
  const Result<std::string> page = page_of(files);
  if (!page) return complain(page.error().failure().detail);
  const Status status = write_file(html, *page);
  return status.ok() ? 0 : complain("--html: " + status.failure().detail);
}

}  // namespace
}  // namespace lockstep::properties

int main(int argc, char** argv) {
  try {
    return lockstep::properties::run(argc, argv);
  } catch (const std::exception& error) {
    return lockstep::properties::complain(error.what());
  }
}
