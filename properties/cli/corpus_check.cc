#include "properties/cli/corpus_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "properties/case/case_json.h"
#include "properties/case/invalid.h"
#include "properties/cli/case_pool.h"
#include "properties/cli/interrupt.h"
#include "properties/cli/output.h"
#include "properties/cli/scratch.h"

namespace lockstep::properties {
namespace {

struct CorpusCase {
  std::string file;
  Case value;
};

// The cases of the files that the subject has all options for, and the names of the other files.
struct Corpus {
  std::vector<CorpusCase> cases;
  std::vector<std::string> lacking;
};

// All cases of a folder, sorted by name.
Result<std::vector<std::string>> files_of(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error))
    if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  if (error)
    return failed(invalid(fmt::format("cannot read the folder {}: {}", folder, error.message())));
  if (files.empty()) return failed(invalid(fmt::format("there is no case (*.json) in {}", folder)));
  std::sort(files.begin(), files.end());
  return files;
}

Result<Corpus> read_corpus(const std::string& folder, const Subject& subject) {
  const Result<std::vector<std::string>> files = files_of(folder);
  if (!files) return failed(files.error());
  Corpus corpus;
  for (const std::string& file : *files) {
    Result<Case> c = read_case(file);
    if (!c) return failed(c.error());
    if (missing(*c, subject.capabilities).empty())
      corpus.cases.push_back({file, std::move(*c)});
    else
      corpus.lacking.push_back(file);
  }
  return corpus;
}

// The runs of a check, lane by lane, in the order in which they are printed.
struct Run {
  LaneKind lane;
  std::string file;
  std::optional<Outcome> outcome = std::nullopt;
};

struct Tally {
  std::size_t printed = 0;
  std::size_t failed = 0;
  int code = 0;
};

// Prints the runs that have ended and follow on the ones already printed.
void print_ended(const std::vector<Run>& runs, Tally& tally) {
  while (tally.printed < runs.size() && runs[tally.printed].outcome) {
    const Run& run = runs[tally.printed++];
    const Verdict& verdict = run.outcome->verdict;
    tell(fmt::format("{}  {}: {}\n", name_of(run.lane), run.file, verdict_line(*run.outcome)));
    if (verdict.ok()) continue;
    tell(verdict.message + "\n");
    ++tally.failed;
    if (tally.code == 0) tally.code = static_cast<int>(verdict.failing);
  }
}

}  // namespace

int run_corpus_check(const CorpusCheckOptions& options) {
  const Subject& subject = options.subject;
  const Result<Corpus> corpus = read_corpus(options.folder, subject);
  if (!corpus) return complain(corpus.error());
  watch_for_interrupt();
  const ScratchFolder scratch;

  std::vector<PoolStation> stations;
  std::string lanes;
  for (const LaneKind lane : {LaneKind::kSim, LaneKind::kGloo}) {
    if (!has_lane(lane, subject)) continue;
    stations.push_back({lane, subject});
    lanes += (lanes.empty() ? "" : " and ") + std::string(name_of(lane));
  }
  CasePool pool(stations, options.jobs);
  std::vector<Run> runs;
  for (std::size_t s = 0; s < stations.size(); ++s) {
    for (const CorpusCase& each : corpus->cases) {
      pool.add({s, runs.size(), &each.value});
      runs.push_back({stations[s].lane, each.file});
    }
  }

  Tally tally;
  while (!pool.is_done()) {
    std::vector<PoolResult> results = pool.wait(kTurnOfPool);
    if (interrupted()) {
      tell(fmt::format("corpus: interrupted after {} of {} runs, {} failing\n", tally.printed,
                       runs.size(), tally.failed));
      return kInterrupted;
    }
    for (PoolResult& result : results)
      runs[result.job.id].outcome = unless_machine_lacks(
          std::move(result.outcome), runs[result.job.id].lane, subject, options.jobs);
    print_ended(runs, tally);
  }
  for (const std::string& file : corpus->lacking)
    tell(fmt::format("not run: {}, which is about an option that the subject lacks\n", file));
  tell(fmt::format("corpus: {} cases on subject {}, lane {}: {} failing\n", corpus->cases.size(),
                   subject.name(), lanes, tally.failed));
  return tally.code;
}

int run_corpus_convert(const std::string& folder) {
  const Result<std::vector<std::string>> files = files_of(folder);
  if (!files) return complain(files.error());
  std::vector<std::pair<std::string, std::string>> changed;  // file and its new text
  for (const std::string& file : *files) {
    const Result<std::string> text = read_file(file, kMaxCaseBytes);
    if (!text) return complain(text.error());
    std::string about;
    const Result<Case> c = from_json(*text, file, &about);
    if (!c) return complain(c.error());
    const Result<FoundWith> found = found_with_of(*text, file);
    if (!found) return complain(found.error());
    if (std::string now = to_json(*c, about, *found); now != *text) changed.emplace_back(file, now);
  }
  for (const auto& [file, text] : changed)
    if (const Status status = write_file(file, text); !status.ok()) return complain(status);
  tell(fmt::format("corpus: {} of {} files written anew, in schema {}\n", changed.size(),
                   files->size(), kCaseSchema));
  return 0;
}

}  // namespace lockstep::properties
