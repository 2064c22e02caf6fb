#include <algorithm>
#include <chrono>
#include <functional>
#include <string_view>
#include <type_traits>

#include "properties/case/fields.h"
#include "properties/cli/fuzz.h"
#include "properties/cli/interrupt.h"
#include "properties/cli/server.h"
#include "properties/lane/time_limit.h"
#include "properties/report/failure_report.h"
#include "properties/shrink/shrink.h"

namespace lockstep::properties {
namespace {

using Clock = std::chrono::steady_clock;

class Shrinker {
 public:
  Shrinker(LaneKind lane, const Subject& subject, Verdict target, double seconds)
      : lane_(lane),
        subject_(subject),
        server_(lane, subject),
        target_(std::move(target)),
        end_(Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000))) {}

  // Real sockets have schedules of their own, so there a case gets several attempts.
  bool fails(const Case& c) { return fails(c, {}); }

  // Runs the case once more, with the flight records of the ranks.
  bool fails_in_detail(const Case& c) { return fails(c, {false, false, true}); }

  bool out_of_time() const { return interrupted() || Clock::now() >= end_; }
  std::uint64_t executions() const { return executions_; }
  const Outcome& last() const { return last_; }

 private:
  bool fails(const Case& c, CaseServer::Request request) {
    const bool is_real = lane_ == LaneKind::kGloo || lane_ == LaneKind::kHosts;
    const int tries = is_real ? 3 : 1;
    for (int i = 0; i < tries; ++i) {
      ++executions_;
      Outcome outcome = server_.run(c, request, repeat_limit(lane_, subject_, c));
      if (outcome.verdict.same_failure(target_)) {
        last_ = std::move(outcome);
        return true;
      }
    }
    return false;
  }

  LaneKind lane_;
  const Subject& subject_;
  CaseServer server_;
  Verdict target_;
  Clock::time_point end_;
  std::uint64_t executions_ = 0;
  Outcome last_;
};

// Changes that say something about the cause if they do not matter.
struct Change {
  const char* name;
  std::function<bool(Case&)> apply;  // false: nothing to change
};

// Every field of the record that has a row with the name of a change: from its default to another
// value, and from any other value to the default. get(case) is the record.
template <typename Record, typename Get>
void add_changes(const Get& get, std::vector<Change>& changes) {
  fields::for_each<Record>([&](const auto& field) {
    static const Record simplest;
    using T = std::remove_cvref_t<decltype(field.get(simplest))>;
    if (field.row.change == nullptr) return;
    changes.push_back({field.row.change, [&field, get](Case& c) {
                         const auto choices = field.row.choices;
                         const T other = static_cast<T>(choices.empty() ? 1 : choices[0]);
                         const bool is_set = fields::is_set(field, get(c));
                         field.get(get(c)) = is_set ? field.get(simplest) : other;
                         return true;
                       }});
  });
}

std::vector<Change> changes_of_options() {
  std::vector<Change> changes = {
      {"the bucket limits",
       [](Case& c) {
         c.program.options.first_bucket_bytes = c.program.options.bucket_bytes = 1;
         c.program.options.last_bucket_bytes = 0;
         return true;
       }},
      {"verified payloads",
       [](Case& c) {
         c.program.options.verify = !c.program.options.verify;
         if (c.program.options.verify) c.program.options.order = reference::Order::kRankOrder;
         return true;
       }},
  };
  add_changes<reference::Replicated>(
      [](Case & c) -> auto& { return c.program.options; }, changes);
  add_changes<TorchOptions>(
      [](Case & c) -> auto& { return c.torch; }, changes);
  add_changes<Environment>(
      [](Case & c) -> auto& { return c.environment; }, changes);
  return changes;
}

std::vector<Change> all_changes(LaneKind lane) {
  std::vector<Change> changes = {
      {"the values",
       [](Case& c) {
         c.program.key ^= 0x5bd1e995u;
         return true;
       }},
      {"the number of ranks",
       [](Case& c) { return c.program.world < reference::kMaxWorld && ++c.program.world; }},
      {"the dtype",
       [](Case& c) {
         for (auto& p : c.program.parameters)
           p.dtype = p.dtype == reference::DType::kFloat64 ? reference::DType::kFloat32
                                                           : reference::DType::kFloat64;
         return true;
       }},
  };
  for (Change& change : changes_of_options()) changes.push_back(std::move(change));
  changes.push_back({"the schedule", [lane](Case& c) {
                       if (lane != LaneKind::kSim) return false;
                       c.schedule = Schedule{Schedule::Policy::kRoundRobin, 7, {}};
                       return true;
                     }});
  return changes;
}

std::vector<std::string> find_irrelevant(const Case& value, LaneKind lane, const Subject& subject,
                                         Shrinker& shrinker) {
  const Capabilities able = common_capabilities(subject);
  std::vector<std::string> irrelevant;
  for (const Change& change : all_changes(lane)) {
    Case changed = value;
    if (shrinker.out_of_time() || !change.apply(changed)) continue;
    normalize(changed);
    if (equal(changed, value)) continue;            // it means nothing in this case
    if (!missing(changed, able).empty()) continue;  // an option that the subject lacks
    if (shrinker.fails(changed)) irrelevant.emplace_back(change.name);
  }
  return irrelevant;
}

}  // namespace

void add_detailed_checks(const Case& c, LaneKind lane, Subject subject, Outcome& outcome) {
  const auto find = [](const Outcome& from, std::string_view part) {
    return std::find_if(from.errors.begin(), from.errors.end(), [&](const RankError& error) {
      return error.text.find(part) != std::string::npos;
    });
  };
  const bool may_be_mismatch =
      outcome.verdict.failing == Failing::kCrash || find(outcome, "gloo") != outcome.errors.end();
  if (subject.kind != Subject::Kind::kPython || !may_be_mismatch || interrupted()) return;
  subject.rank_arguments.emplace_back("detailed-checks");
  CaseServer server(lane, subject);
  const Outcome checked = server.run(c, {});
  for (const char* part : {"mismatch between collectives", "monitoredBarrier"})
    if (const auto error = find(checked, part); error != checked.errors.end()) {
      outcome.verdict.message +=
          "\nwith PyTorch's detailed checks (TORCH_DISTRIBUTED_DEBUG=DETAIL), " +
          errors_block({*error});
      return;
    }
}

Shrunk shrink_failure(const Case& value, const Outcome& outcome, LaneKind lane,
                      const Subject& subject, double seconds) {
  Shrunk shrunk;
  shrunk.value = value;
  shrunk.outcome = outcome;
  Shrinker shrinker(lane, subject, outcome.verdict, seconds);
  shrunk.reproduced = shrinker.fails(value);
  if (!shrunk.reproduced) {
    shrunk.executions = shrinker.executions();
    return shrunk;
  }
  shrunk.outcome = shrinker.last();
  ShrinkOptions options;
  options.max_executions = 20'000;
  options.within = needed(value);
  options.stop = [&shrinker] { return shrinker.out_of_time(); };
  if (lane == LaneKind::kSim) {
    options.extra_seeds = 2;
    options.record = [&shrinker](const Case& c) -> std::optional<std::vector<Schedule::Deviation>> {
      if (!shrinker.fails(c)) return std::nullopt;
      std::vector<Schedule::Deviation> deviations;
      for (const auto& [choice, fiber] : shrinker.last().deviations)
        deviations.push_back({choice, fiber});
      return deviations;
    };
  }
  const ShrinkResult result = shrink(
      value, [&shrinker](const Case& c) { return shrinker.fails(c); }, options);
  shrunk.value = result.value;
  shrunk.was_cut_off = shrinker.out_of_time();
  if (shrinker.fails_in_detail(result.value)) shrunk.outcome = shrinker.last();
  add_detailed_checks(result.value, lane, subject, shrunk.outcome);
  shrunk.executions = shrinker.executions();
  shrunk.irrelevant = find_irrelevant(result.value, lane, subject, shrinker);
  return shrunk;
}

}  // namespace lockstep::properties
