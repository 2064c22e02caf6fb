// Runs one part of a campaign, block by block.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "properties/campaign/part_files.h"
#include "properties/case/case_json.h"
#include "properties/cli/campaign.h"
#include "properties/cli/interrupt.h"
#include "properties/cli/output.h"
#include "properties/cli/scratch.h"
#include "properties/cli/status_line.h"
#include "properties/cli/workers.h"
#include "properties/generate/features.h"
#include "properties/lane/needs.h"
#include "properties/process/terminal.h"
#include "properties/shrink/size.h"

namespace lockstep::properties {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLockPatienceSeconds = 120;  // longer than the lease of an NFS server
constexpr std::uint64_t kShrunkAlways = 8;
constexpr std::size_t kMaxMessage = 4000;  // of a failure in the log

std::int64_t unix_now() { return static_cast<std::int64_t>(std::time(nullptr)); }

// Of many failures that end alike, the first few are made small, and later ones more and more
// rarely: a second cause shows, and the time goes into new cases.
bool is_to_be_shrunk(std::uint64_t number) {
  return number <= kShrunkAlways || (number & (number - 1)) == 0;
}

std::vector<std::string> fired_in(const Outcome& outcome) {
  std::vector<std::string> out;
  for (std::size_t k = 0; k < outcome.fired.size(); ++k)
    if (outcome.fired[k] != 0) out.emplace_back(faults::name_of(static_cast<faults::Kind>(k)));
  return out;
}

using Ending = std::pair<Failing, std::string>;  // the second is the oracle

class PartRun {
 public:
  explicit PartRun(const FuzzOptions& options)
      : options_(options), campaign_(*options.campaign), lane_(options.lanes.front()) {}

  // Returns the exit code.
  int run() {
    if (const Status status = join(); !status.ok()) return complain(status);
    needs_ = needs_of(lane_, options_.subject, jobs());
    if (const Status status = check_needs(needs_); !status.ok())
      return complain(status, kInconclusive);
    start_ = Clock::now();
    const Status status = run_blocks();
    status_.clear();
    const int code = status.ok() ? end_code() : kUsage;
    if (!status.ok()) complain(status);
    tell(summary());
    return code;
  }

 private:
  int jobs() const { return options_.jobs != 0 ? options_.jobs : usual_jobs(lane_); }

  CampaignPlan my_plan() const {
    CampaignPlan plan;
    plan.program = campaign_.version;
    plan.commit = kCommit;
    plan.parts = campaign_.part.count;
    plan.seed = options_.seed;
    plan.lane = name_of(lane_);
    plan.subject = options_.subject.name();
    if (options_.subject.against) plan.against = options_.subject.against->name();
    plan.faults = campaign_.faults;
    plan.transport = campaign_.transport;
    if (options_.generate.policy) plan.policy = name_of(*options_.generate.policy);
    for (std::size_t f = 0; f < feature_count(); ++f) plan.features.emplace_back(feature_name(f));
    return plan;
  }

  Status join() {
    Result<CampaignPlan> plan = join_campaign(campaign_.folder, my_plan(), campaign_.has_seed);
    if (!plan) return plan.error();
    plan_ = std::move(*plan);
    LOCKSTEP_RETURN_IF_ERROR(files_.open(campaign_.folder, campaign_.part, kLockPatienceSeconds));
    history_ = files_.history();
    for (const std::size_t line : history_.dropped_lines)
      remark(fmt::format("line {} of {} is not whole; what it had runs again", line,
                         part_log_file(campaign_.folder, campaign_.part.number)));
    for (const auto& [index, failure] : history_.failures) ++alike_[ending_of(failure)];
    for (const BlockRecord& block : history_.blocks)
      for (const auto& [feature, small] : block.smallest) note_smallest(feature, small);
    start_cases_ = counted_cases();
    StartRecord record{unix_now(), host_name(), ::getpid(), jobs(), options_.cases};
    LOCKSTEP_RETURN_IF_ERROR(files_.append(to_line(record)));
    return files_.sync();
  }

  std::uint64_t counted_cases() const {
    std::uint64_t cases = 0;
    for (const BlockRecord& block : history_.blocks) cases += block.end - block.begin;
    return cases;
  }

  WorkerPlan worker_plan() const {
    WorkerPlan plan;
    plan.lane = lane_;
    plan.subject = options_.subject;
    plan.generate = generate_options_of(options_, lane_);
    plan.seed = plan_.seed;
    plan.jobs = jobs();
    plan.stride = campaign_.part.count;
    plan.offset = campaign_.part.number;
    plan.finds_smallest = true;
    return plan;
  }

  bool is_time_over() const {
    return options_.cases == 0 && seconds_since(start_) >= options_.seconds;
  }

  // The next cases to run; nothing if none are left.
  std::optional<OpenRange> next_range() const {
    OpenRange range = first_open_range(history_.blocks);
    if (options_.cases == 0) return range;
    const std::uint64_t end = positions_of(campaign_.part, options_.cases);
    if (range.begin >= end) return std::nullopt;
    range.end = std::min(range.end.value_or(end), end);
    return range;
  }

  Status run_blocks() {
    LOCKSTEP_RETURN_IF_ERROR(shrink_waiting());
    while (!interrupted() && why_inconclusive_.empty() && !is_time_over()) {
      const std::optional<OpenRange> range = next_range();
      if (!range) break;
      LOCKSTEP_RETURN_IF_ERROR(run_block(*range));
    }
    is_complete_ = options_.cases != 0 && !next_range();
    EndRecord end{unix_now(), "the time was over"};
    if (is_complete_) end.why = "all cases have run";
    if (interrupted()) end.why = "interrupted";
    if (!why_inconclusive_.empty()) end.why = "inconclusive: " + why_inconclusive_;
    LOCKSTEP_RETURN_IF_ERROR(files_.append(to_line(end)));
    return files_.sync();
  }

  // Runs cases until the block's time is over, and waits for those in flight. A block in which
  // something remains open is not recorded: its cases run again.
  Status run_block(const OpenRange& range) {
    WorkerPlan plan = worker_plan();
    plan.first = range.begin;
    plan.cases = range.end ? *range.end - range.begin : 0;
    const Clock::time_point begin = Clock::now();
    Workers workers(plan);
    if (const Status status = workers.start(); !status.ok()) {
      why_inconclusive_ = status.failure().detail;
      return {};
    }
    bool is_cut_off = false;
    while (!interrupted() && !workers.all_done()) {
      const std::optional<Found> found = workers.wait(std::chrono::milliseconds(100));
      if (seconds_since(begin) >= campaign_.block_seconds || is_time_over()) workers.finish();
      show(workers);
      // On a cluster a signal to this process may have ended ranks of a case as well.
      is_cut_off = is_cut_off || (found && interrupted());
      if (found && !is_cut_off) LOCKSTEP_RETURN_IF_ERROR(add(*found));
      if (!why_inconclusive_.empty()) return {};
    }
    const Workers::Stopped stopped = workers.stop();
    const Totals totals = workers.totals();
    const bool is_whole = !is_cut_off && stopped.found.empty() && stopped.unanswered.empty();
    if (!workers.problem().empty()) why_inconclusive_ = workers.problem();
    if (!is_whole || !workers.problem().empty() || totals.next == range.begin) return {};
    return record(range.begin, totals, seconds_since(begin));
  }

  Status record(std::uint64_t begin, const Totals& totals, double seconds) {
    BlockRecord block;
    block.begin = begin;
    block.end = totals.next;
    block.at = unix_now();
    block.run.against = plan_.against;
    block.run.planted.id = planted_bug_of(options_.subject);
    block.run.seconds = seconds;
    copy_totals(totals, block.run);
    for (const auto& [feature, indices] : totals.smallest)
      for (const std::uint64_t index : indices) {
        const SmallCase small{index, size_of(case_of(worker_plan(), index))};
        if (note_smallest(feature, small)) block.smallest[feature] = small;
      }
    LOCKSTEP_RETURN_IF_ERROR(files_.append(to_line(block)));
    LOCKSTEP_RETURN_IF_ERROR(files_.sync());
    ok_ += block.run.counts.ok;
    faulted_ok_ += block.run.counts.faulted_ok;
    history_.blocks.push_back(std::move(block));
    std::sort(history_.blocks.begin(), history_.blocks.end(),
              [](const BlockRecord& a, const BlockRecord& b) { return a.begin < b.begin; });
    return {};
  }

  // Returns whether the case is smaller than those that the part has seen with this feature.
  bool note_smallest(const std::string& feature, const SmallCase& small) {
    const auto [at, is_new] = smallest_.try_emplace(feature, small.size);
    if (!is_new && !(small.size < at->second)) return false;
    at->second = small.size;
    return true;
  }

  // How a failure has ended, before it is made small.
  static Ending ending_of(const FailureRecord& failure) {
    return {failure.failing, failure.oracle};
  }

  Status add(const Found& found) {
    const Verdict& verdict = found.outcome.verdict;
    if (verdict.failing == Failing::kInconclusive) {
      why_inconclusive_ =
          fmt::format("case {} of seed {}: {}", found.index, plan_.seed, verdict.message);
      return {};
    }
    if (const Status lack = check_needs(still_needed(needs_)); !lack.ok()) {
      why_inconclusive_ = fmt::format(
          "case {} of seed {} ended in {}, on a machine that lacks what the lane needs: {}",
          found.index, plan_.seed, name_of(verdict.failing), lack.failure().detail);
      return {};
    }
    if (history_.failures.contains(found.index)) return {};  // of a block that was not recorded
    FailureRecord failure{found.index,
                          unix_now(),
                          verdict.failing,
                          verdict.oracle,
                          verdict.message.substr(0, kMaxMessage),
                          fired_in(found.outcome),
                          verdict.might_succeed};
    history_.failures.emplace(found.index, failure);
    const bool is_shrunk = is_to_be_shrunk(++alike_[ending_of(failure)]);
    if (const Status status = files_.append(to_line(failure)); !status.ok())
      return print_lost(found.index, status);
    return is_shrunk ? shrink(failure) : Status();
  }

  // The failures that were to be made small when the process before this one ended.
  Status shrink_waiting() {
    std::map<Ending, std::uint64_t> alike;
    const std::map<std::uint64_t, FailureRecord> failures = history_.failures;
    for (const auto& [index, failure] : failures) {
      const bool is_due = is_to_be_shrunk(++alike[ending_of(failure)]);
      if (is_due && !history_.shrunk.contains(index) && !interrupted())
        LOCKSTEP_RETURN_IF_ERROR(shrink(failure));
    }
    return {};
  }

  std::string about(const FailureRecord& failure) const {
    return fmt::format("{} ({}) on subject {}, lane {}: seed {}, case {}", name_of(failure.failing),
                       failure.oracle, plan_.subject, plan_.lane, plan_.seed, failure.index);
  }

  Status shrink(const FailureRecord& failure) {
    status_.clear();
    write_aside(fmt::format("{} in case {}; making it small...\n", name_of(failure.failing),
                            failure.index));
    const Case original = case_of(worker_plan(), failure.index);
    Outcome outcome;
    outcome.verdict = verdict_of(failure);
    // A smaller case would not help where NCCL did not run as it was pinned.
    const bool is_of_case = failure.failing != Failing::kUnproven;
    const Shrunk small = shrink_failure(original, outcome, lane_, options_.subject,
                                        is_of_case ? options_.shrink_seconds : 0);
    if (interrupted()) return {};  // the next process makes it small
    const std::string name = fmt::format("{}.json", failure.index);
    const std::string path = files_.folder() + "/" + name;
    if (const Status status = write_case(path, small.value, about(failure), found_with(plan_));
        !status.ok())
      return print_lost(failure.index, status);
    const ShrunkRecord record{failure.index, small.reproduced,
                              path.substr(campaign_.folder.size() + 1)};
    history_.shrunk.insert_or_assign(failure.index, record);
    if (const Status status = files_.append(to_line(record)); !status.ok())
      return print_lost(failure.index, status);
    return files_.sync();
  }

  // A failure that cannot be written is printed, so that it is not lost.
  Status print_lost(std::uint64_t index, const Status& status) {
    status_.clear();
    const FailureRecord& failure = history_.failures.at(index);
    tell(fmt::format("{}; the case, so that it is not lost:\n{}\n", about(failure),
                     to_json(case_of(worker_plan(), index), about(failure))));
    return status;
  }

  void show(const Workers& workers) {
    const Totals totals = workers.totals();
    const double seconds = seconds_since(start_);
    RunStatus status;
    status.cases = counted_cases() - start_cases_ + totals.cases;
    if (!status_.is_due(seconds, status.cases)) return;
    // smallest_ does not have the new features of the block that runs.
    const auto features =
        smallest_.size() + static_cast<std::size_t>(std::count_if(
                               totals.coverage.begin(), totals.coverage.end(),
                               [&](const auto& each) { return !smallest_.contains(each.first); }));
    if (features > features_) new_feature_at_ = seconds;
    features_ = std::max(features_, features);
    status.lane = fmt::format("{} part {}", plan_.lane, campaign_.part.to_string());
    status.subject = plan_.subject;
    status.seed = plan_.seed;
    status.seconds = seconds;
    status.ok = ok_ + totals.ok;
    status.faulted_ok = faulted_ok_ + totals.faulted_ok;
    status.features = features_;
    status.seconds_since_feature = seconds - new_feature_at_;
    status.failures = history_.failures.size();
    if (options_.cases == 0) status.seconds_left = options_.seconds - seconds;
    if (options_.cases != 0) {
      const std::uint64_t all = positions_of(campaign_.part, options_.cases);
      status.cases_left = all - std::min(all, counted_cases() + totals.cases);
    }
    status_.show(status);
  }

  int end_code() const {
    if (!why_inconclusive_.empty()) return kInconclusive;
    if (interrupted()) return kInterrupted;
    if (!history_.failures.empty())
      return static_cast<int>(history_.failures.begin()->second.failing);
    return counted_cases() == 0 && !is_complete_ ? kInconclusive : 0;
  }

  std::string summary() const {
    const std::uint64_t cases = counted_cases();
    std::string out = fmt::format(
        "part {} of the campaign in {}: {} lane, subject {}, seed {}: {} cases now, {} in all, {} "
        "failing\n",
        campaign_.part.to_string(), campaign_.folder, plan_.lane, plan_.subject, plan_.seed,
        cases - start_cases_, cases, history_.failures.size());
    if (!why_inconclusive_.empty()) out += "inconclusive: " + why_inconclusive_ + "\n";
    out += is_complete_ ? "the part has run all of its cases\n"
                        : "the same command goes on where it stopped\n";
    if (!history_.failures.empty())
      out +=
          fmt::format("all failures: {} campaign report {}\n", options_.program, campaign_.folder);
    return out;
  }

  const FuzzOptions& options_;
  const CampaignOptions& campaign_;
  const LaneKind lane_;
  CampaignPlan plan_;
  PartFiles files_;
  PartHistory history_;                    // grows with the log
  std::map<std::string, Size> smallest_;   // by feature
  std::size_t features_ = 0;               // how many features the status line has shown
  double new_feature_at_ = 0;              // in seconds since the start
  std::map<Ending, std::uint64_t> alike_;  // how many failures have ended alike
  Needs needs_;
  StatusLine status_;
  Clock::time_point start_;
  std::uint64_t start_cases_ = 0;  // that had run before this process
  std::uint64_t ok_ = 0;           // cases of this process's blocks, as in Totals
  std::uint64_t faulted_ok_ = 0;
  bool is_complete_ = false;
  std::string why_inconclusive_;
};

}  // namespace

int run_part(const FuzzOptions& options) {
  watch_for_interrupt();
  const ScratchFolder scratch;
  PartRun run(options);
  return run.run();
}

}  // namespace lockstep::properties
