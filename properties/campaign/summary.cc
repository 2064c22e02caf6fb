#include "properties/campaign/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "properties/generate/features.h"
#include "properties/process/shell_word.h"

namespace lockstep::properties {
namespace {

constexpr std::size_t kMaxPartLines = 64;
constexpr std::size_t kMaxUnseen = 8;

template <typename Key, typename Value>
void add_counts(const std::map<Key, Value>& from, std::map<Key, Value>& to) {
  for (const auto& [name, count] : from) to[name] += count;
}

void add_block(const RunReport& run, RunReport& total) {
  total.seconds += run.seconds;
  total.counts.cases += run.counts.cases;
  total.counts.ok += run.counts.ok;
  total.counts.faulted_ok += run.counts.faulted_ok;
  total.compared.programs += run.compared.programs;
  total.compared.whole += run.compared.whole;
  total.coverage.cases += run.coverage.cases;
  total.counts.errors += run.counts.errors;
  total.determinism.pairs += run.determinism.pairs;
  total.determinism.mismatches += run.determinism.mismatches;
  if (!run.planted.id.empty()) total.planted.id = run.planted.id;
  total.planted.seen += run.planted.seen;
  add_counts(run.coverage.features, total.coverage.features);
  add_counts(run.coverage.faults_fired, total.coverage.faults_fired);
  add_counts(run.counts.unspecified, total.counts.unspecified);
}

std::string state_of(const PartHistory& history, bool is_running, bool is_complete) {
  if (is_running) return "running";
  if (is_complete) return "complete";
  if (history.end) return history.end->why;
  return "ended in the middle; start it again";
}

void note_remarks(const PartHistory& history, std::vector<std::string>& remarks) {
  if (!history.dropped_lines.empty())
    remarks.push_back(fmt::format(
        "the log of part {} has {} not whole (line {}); what was there runs again when the part "
        "starts",
        history.part.number,
        history.dropped_lines.size() == 1
            ? "1 line that is"
            : fmt::format("{} lines that are", history.dropped_lines.size()),
        fmt::join(history.dropped_lines, ", ")));
  if (history.repeated_cases > 0)
    remarks.push_back(fmt::format(
        "part {} has run {} cases twice, which count once: two processes have had its lock; use a "
        "file system whose locks hold",
        history.part.number, history.repeated_cases));
}

// Cases and features over time, and since when there was no new feature.
void add_progress(const std::vector<PartHistory>& parts, CampaignSummary& summary) {
  std::vector<std::pair<std::int64_t, const BlockRecord*>> blocks;
  std::optional<std::int64_t> start;
  for (const PartHistory& part : parts) {
    for (const StartRecord& each : part.starts) start = std::min(start.value_or(each.at), each.at);
    for (const BlockRecord& block : part.blocks) blocks.emplace_back(block.at, &block);
  }
  std::sort(blocks.begin(), blocks.end());
  std::set<std::string> features;
  std::uint64_t cases = 0;
  RunProgress newest;
  for (const auto& [at, block] : blocks) {
    cases += block->run.counts.cases;
    for (const auto& [name, count] : block->run.coverage.features) features.insert(name);
    const RunProgress now{static_cast<double>(at - start.value_or(at)), cases, features.size()};
    if (now.features > newest.features) newest = now;
    std::vector<RunProgress>& progress = summary.total.coverage.progress;
    if (!progress.empty() && progress.back().seconds == now.seconds) progress.pop_back();
    progress.push_back(now);
  }
  if (summary.total.coverage.progress.empty()) return;
  summary.last_feature_seconds = summary.total.coverage.progress.back().seconds - newest.seconds;
  summary.last_feature_cases = cases - newest.cases;
}

bool is_smaller(const SmallCase& a, const SmallCase& b) {
  return std::tie(a.size, a.index) < std::tie(b.size, b.index);
}

void add_part(const PartHistory& history, CampaignSummary& summary) {
  PartSummary& part = summary.parts.at(history.part.number);
  for (const BlockRecord& block : history.blocks) {
    add_block(block.run, summary.total);
    part.cases += block.end - block.begin;
    part.seconds += block.run.seconds;
    for (const auto& [feature, small] : block.smallest) {
      const auto [at, is_new] = summary.smallest.try_emplace(feature, small);
      if (!is_new && is_smaller(small, at->second)) at->second = small;
    }
  }
  part.failures = history.failures.size();
  for (const auto& [index, failure] : history.failures) {
    CampaignFailure each{history.part.number, failure, {}};
    const auto shrunk = history.shrunk.find(index);
    if (shrunk != history.shrunk.end()) each.shrunk = shrunk->second;
    summary.failures.push_back(std::move(each));
  }
  note_remarks(history, summary.remarks);
}

std::string parts_text(const CampaignSummary& summary) {
  std::string out = " part      cases       of  failing  a second  state\n";
  std::map<std::string, std::size_t> left_out;
  for (std::size_t i = 0; i < summary.parts.size(); ++i) {
    const PartSummary& part = summary.parts[i];
    if (i >= kMaxPartLines) {
      ++left_out[part.state];
      continue;
    }
    const double rate = part.seconds > 0 ? static_cast<double>(part.cases) / part.seconds : 0;
    out += fmt::format("{:5} {:10} {:>8}  {:7} {:9.0f}  {}\n", part.part.number, part.cases,
                       part.of_cases ? fmt::format("{}", *part.of_cases) : "-", part.failures, rate,
                       part.state);
  }
  for (const auto& [state, count] : left_out) out += fmt::format("and {} more: {}\n", count, state);
  return out;
}

std::string pairs_text(const CampaignSummary& summary) {
  std::vector<std::string> unseen;
  const std::vector<std::string> pairs = pairs_of_features();
  for (const std::string& pair : pairs)
    if (!summary.smallest.contains(pair)) unseen.push_back(pair);
  std::string out = fmt::format("features seen: {} of {}; pairs of features: {} of {}",
                                summary.total.coverage.features.size(), feature_count(),
                                pairs.size() - unseen.size(), pairs.size());
  if (unseen.empty()) return out + "\n";
  const std::size_t shown = std::min(unseen.size(), kMaxUnseen);
  const auto end = unseen.begin() + static_cast<std::ptrdiff_t>(shown);
  out += fmt::format("; not seen: {}", fmt::join(unseen.begin(), end, "; "));
  if (shown < unseen.size()) out += fmt::format("; and {} more", unseen.size() - shown);
  return out + "\n";
}

std::string counts_line(const char* title, const std::map<std::string, std::uint64_t>& counts) {
  if (counts.empty()) return {};
  std::vector<std::string> parts;
  for (const auto& [name, count] : counts) parts.push_back(fmt::format("{} {}", name, count));
  return fmt::format("{} {}\n", title, fmt::join(parts, ", "));
}

}  // namespace

CampaignSummary summarize(const CampaignPlan& plan, const std::vector<PartHistory>& parts,
                          const std::set<std::uint64_t>& running) {
  CampaignSummary summary;
  summary.plan = plan;
  for (const PartHistory& history : parts)
    for (const StartRecord& start : history.starts)
      if (start.cases != 0) summary.cases = std::max(summary.cases.value_or(0), start.cases);
  for (std::uint64_t s = 0; s < plan.parts; ++s) {
    PartSummary part;
    part.part = {s, plan.parts};
    part.state = "has not begun";
    if (summary.cases) part.of_cases = positions_of(part.part, *summary.cases);
    summary.parts.push_back(std::move(part));
  }
  summary.total.lane = plan.lane;
  summary.total.subject = plan.subject;
  summary.total.against = plan.against;
  summary.total.seed = plan.seed;
  summary.total.commit = plan.commit;
  for (const PartHistory& history : parts) {
    if (history.part.number >= plan.parts) continue;
    add_part(history, summary);
    PartSummary& part = summary.parts[history.part.number];
    part.state = state_of(history, running.contains(history.part.number),
                          part.of_cases && part.cases >= *part.of_cases);
  }
  std::sort(summary.failures.begin(), summary.failures.end(),
            [](const CampaignFailure& a, const CampaignFailure& b) {
              return a.found.index < b.found.index;
            });
  add_progress(parts, summary);
  return summary;
}

std::vector<Ending> endings_of(const CampaignSummary& summary) {
  std::map<std::pair<int, std::string>, Ending> by_ending;
  for (const CampaignFailure& failure : summary.failures) {
    const int exit_code = static_cast<int>(failure.found.failing);
    Ending& ending = by_ending[{exit_code, failure.found.oracle}];
    ending.exit_code = exit_code;
    ending.oracle = failure.found.oracle;
    ending.indices.push_back(failure.found.index);
    if (failure.shrunk && failure.shrunk->reproduced)
      ending.case_files.push_back(failure.shrunk->case_file);
  }
  std::vector<Ending> out;
  for (auto& [key, ending] : by_ending) out.push_back(std::move(ending));
  std::stable_sort(out.begin(), out.end(), [](const Ending& a, const Ending& b) {
    return a.indices.size() > b.indices.size();
  });
  return out;
}

// A bug that shows in a share p of the cases survives n independent cases with probability
// (1 - p)^n. A case that fails may hide another bug, so only those that passed count.
std::string excluded_line(const CampaignSummary& summary) {
  const std::uint64_t passed = summary.total.counts.ok + summary.total.counts.faulted_ok;
  if (passed == 0) return {};
  constexpr double kMissed = 0.05;
  const double share = 1 - std::pow(kMissed, 1 / static_cast<double>(passed));
  return fmt::format(
      "excluded at 95 %: a{} bug that fails one of {:.0f} such cases or more; no new feature for "
      "{:.0f} s and {} cases\n",
      summary.failures.empty() ? "" : " further", std::floor(1 / share),
      summary.last_feature_seconds, summary.last_feature_cases);
}

std::vector<std::string> pairs_of_features() {
  std::vector<std::string> out;
  for (std::size_t f = 0; f < feature_count(); ++f)
    if (is_pair_of_features(f)) out.emplace_back(feature_name(f));
  return out;
}

std::string generate_line(const CampaignPlan& plan, std::uint64_t index,
                          const std::string& program) {
  std::string out =
      fmt::format("{} generate {} {} --lane {}", shell_word(program), plan.seed, index, plan.lane);
  if (plan.subject != "reducer") out += " --subject " + shell_word(plan.subject);
  if (!plan.against.empty()) out += " --against " + shell_word(plan.against);
  if (plan.faults != "swarm") out += " --faults " + plan.faults;
  if (!plan.transport.empty()) out += " --transport " + plan.transport;
  if (!plan.policy.empty()) out += " --policy " + plan.policy;
  return out;
}

std::string to_text(const CampaignSummary& summary) {
  const CampaignPlan& plan = summary.plan;
  const RunReport& total = summary.total;
  std::string out = fmt::format(
      "{} lane, subject {}{}, seed {}, {} parts, commit {}\n", plan.lane, plan.subject,
      plan.against.empty() ? "" : " against " + plan.against, plan.seed, plan.parts, plan.commit);
  out += parts_text(summary);
  std::string share;
  if (summary.cases)
    share = fmt::format(" of {} ({:.0f} %)", *summary.cases,
                        100.0 * static_cast<double>(total.counts.cases) /
                            static_cast<double>(std::max<std::uint64_t>(*summary.cases, 1)));
  out +=
      fmt::format("cases: {}{}, {} ok, {} ok with faults, {} failing, in {:.0f} s of all parts\n",
                  total.counts.cases, share, total.counts.ok, total.counts.faulted_ok,
                  summary.failures.size(), total.seconds);
  out += counts_line("faults fired:", total.coverage.faults_fired);
  if (!total.counts.unspecified.empty())
    out += fmt::format("errors judged: {}; ", total.counts.errors) +
           counts_line("left open:", total.counts.unspecified);
  out += planted_line(total.planted.id, total.planted.seen);
  out += pairs_text(summary);
  if (total.determinism.pairs > 0)
    out += fmt::format("run twice: {}, different: {}\n", total.determinism.pairs,
                       total.determinism.mismatches);
  out += excluded_line(summary);
  for (const std::string& remark : summary.remarks) out += "note: " + remark + "\n";
  return out;
}

std::string failures_text(const CampaignSummary& summary, const std::string& folder,
                          const std::string& program) {
  std::string out;
  for (const Ending& ending : endings_of(summary)) {
    out += fmt::format("{} failing case{} with exit code {} (oracle: {})", ending.indices.size(),
                       ending.indices.size() == 1 ? "" : "s", ending.exit_code, ending.oracle);
    if (ending.case_files.empty()) {
      out += fmt::format(", none of them small; the first: {}\n",
                         generate_line(summary.plan, ending.indices.front(), program));
      continue;
    }
    out += fmt::format(", {} of them small:\n", ending.case_files.size());
    for (const std::string& file : ending.case_files)
      out += fmt::format("  {} replay {}\n", shell_word(program), shell_word(folder + "/" + file));
  }
  return out;
}

}  // namespace lockstep::properties
