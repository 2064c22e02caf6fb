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

// A collective that some ranks do not start is waited for so long where only that is looked for.
constexpr std::uint32_t kQuickTimeoutMs = 1000;

// A subject in Python with PyTorch's detailed checks, which compare the ranks' collectives.
Subject with_detailed_checks(Subject subject) {
  subject.rank_arguments.emplace_back("detailed-checks");
  return subject;
}

// What the detailed checks say of it, if the ranks' collectives differ; else nothing.
std::string mismatch_in(const Outcome& checked) {
  for (const char* part : {"mismatch between collectives", "monitoredBarrier"})
    for (const RankError& error : checked.errors)
      if (error.text.find(part) != std::string::npos)
        return "\nwith PyTorch's detailed checks (TORCH_DISTRIBUTED_DEBUG=DETAIL), " +
               errors_block({error});
  return {};
}

// Whether ranks of a wrapper in Python may have started other collectives: one has ended, or waits,
// or Gloo says that something is wrong.
bool may_be_mismatch(const Subject& subject, const Outcome& outcome) {
  const Failing failing = outcome.verdict.failing;
  return subject.kind == Subject::Kind::kPython && !outcome.verdict.ok() &&
         (failing == Failing::kCrash || failing == Failing::kDeadlock ||
          std::ranges::any_of(outcome.errors, [](const RankError& error) {
            return error.text.find("gloo") != std::string::npos;
          }));
}

class Shrinker {
 public:
  Shrinker(LaneKind lane, const Subject& subject, Verdict target, double seconds)
      : lane_(lane),
        subject_(subject),
        server_(lane, subject),
        target_(std::move(target)),
        end_(Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000))) {}
  // Looks for a mismatch of collectives, which the detailed checks tell at once, where a rank would
  // wait until its time is up, or end.
  Shrinker(LaneKind lane, const Subject& subject, double seconds)
      : Shrinker(lane, with_detailed_checks(subject), {}, seconds) {
    is_quick_ = true;
  }

  // Real sockets have schedules of their own, so there a case gets several attempts.
  bool fails(const Case& c) { return fails(c, {}); }

  // Runs the case once more, with the flight records of the ranks.
  bool fails_in_detail(const Case& c) { return fails(c, {false, false, true}); }

  // Runs it once more, whatever its failure is, which differs with what waits and what ends where
  // ranks start other collectives.
  bool fails_in_some_way(const Case& c) {
    ++executions_;
    last_ = server_.run(c, {false, false, true}, repeat_limit(lane_, subject_, c));
    return !last_.verdict.ok() && last_.verdict.failing != Failing::kInconclusive;
  }

  bool out_of_time() const { return interrupted() || Clock::now() >= end_; }
  std::uint64_t executions() const { return executions_; }
  const Outcome& last() const { return last_; }

 private:
  bool fails(const Case& c, CaseServer::Request request) {
    const bool is_real = lane_ == LaneKind::kGloo || lane_ == LaneKind::kHosts;
    const int tries = is_real && !is_quick_ ? 3 : 1;
    Case run = c;
    if (is_quick_) run.timeout_ms = kQuickTimeoutMs;
    for (int i = 0; i < tries; ++i) {
      ++executions_;
      Outcome outcome = server_.run(run, request, repeat_limit(lane_, subject_, run));
      if (is_quick_ ? !mismatch_in(outcome).empty() : outcome.verdict.same_failure(target_)) {
        last_ = std::move(outcome);
        return true;
      }
    }
    return false;
  }

  LaneKind lane_;
  const Subject subject_;
  CaseServer server_;
  Verdict target_;
  Clock::time_point end_;
  std::uint64_t executions_ = 0;
  Outcome last_;
  bool is_quick_ = false;
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
  if (!may_be_mismatch(subject, outcome) || interrupted()) return;
  CaseServer server(lane, with_detailed_checks(std::move(subject)));
  outcome.verdict.message += mismatch_in(server.run(c, {}));
}

Shrunk shrink_failure(const Case& value, const Outcome& outcome, LaneKind lane,
                      const Subject& subject, double seconds) {
  Shrunk shrunk;
  shrunk.value = value;
  shrunk.outcome = outcome;
  Shrinker shrinker(lane, subject, outcome.verdict, seconds);
  ShrinkOptions options;
  options.max_executions = 20'000;
  options.within = needed(value);
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
  const auto make_small = [&](Shrinker& by) {
    if (!by.fails(value)) return false;
    options.stop = [&by] { return by.out_of_time(); };
    const auto test = [&by](const Case& c) { return by.fails(c); };
    shrunk.value = shrink(value, test, options).value;
    shrunk.was_cut_off = by.out_of_time();
    return true;
  };
  std::optional<Shrinker> quick;
  if (may_be_mismatch(subject, outcome)) quick.emplace(lane, subject, seconds);
  if (quick && make_small(*quick) && shrinker.fails_in_some_way(shrunk.value)) {
    shrunk.outcome = shrinker.last();
    shrunk.outcome.verdict.message += mismatch_in(quick->last());
  } else {
    quick.reset();
    shrunk.value = value;
    shrunk.reproduced = make_small(shrinker);
    if (shrunk.reproduced) shrunk.outcome = shrinker.last();
    if (shrunk.reproduced && shrinker.fails_in_detail(shrunk.value))
      shrunk.outcome = shrinker.last();
  }
  shrunk.executions = shrinker.executions() + (quick ? quick->executions() : 0);
  if (shrunk.reproduced)
    shrunk.irrelevant = find_irrelevant(shrunk.value, lane, subject, quick ? *quick : shrinker);
  return shrunk;
}

}  // namespace lockstep::properties
