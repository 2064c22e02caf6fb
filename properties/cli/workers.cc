#include "properties/cli/workers.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "properties/cli/server.h"
#include "properties/generate/features.h"
#include "properties/generate/interleave.h"
#include "properties/generate/neighbour.h"
#include "properties/lane/nccl_lane.h"
#include "properties/lane/needs.h"
#include "properties/lane/time_limit.h"
#include "properties/process/case_timer.h"
#include "properties/report/state_coverage.h"
#include "properties/run/case_runner.h"

namespace lockstep::properties {
namespace {

constexpr int kMaxJobs = 64;
constexpr unsigned kTwiceBits = 6;     // one case in 2^6 runs twice (sim)
constexpr unsigned kFeaturesBits = 4;  // and one in 2^4 is counted for coverage
constexpr std::int64_t kStopLimitMs = 2000;

// Whether the index belongs to a sample of one in 2^bits. Multiples of the golden ratio are spread
// evenly, also over every second or third index (Knuth, The Art of Computer Programming, 6.4).
bool is_in_sample(std::uint64_t index, unsigned bits) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;
  return (index * kGolden) >> (64 - bits) == 0;
}

std::int64_t now_ms() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

}  // namespace

// The memory that is shared with the workers; one worker writes each field.
struct Workers::Shared {
  struct Worker {
    std::atomic<std::uint64_t> current{0};
    CaseTimer timer;  // of the current case
    std::atomic<std::uint64_t> cases{0}, ok{0}, faulted_ok{0}, pairs{0}, mismatches{0}, reruns{0},
        interleaved{0}, coverage_cases{0}, compared{0}, compared_whole{0}, reached{0}, triggered{0},
        errors{0};
    std::array<std::atomic<std::uint64_t>, kUnspecifiedReasons> unspecified{};
    std::array<std::atomic<std::uint64_t>, kMaxSwitchable + 1> switched{};
    std::array<std::atomic<std::uint64_t>, kNotComparableReasons> not_comparable{};
    std::array<std::atomic<std::uint64_t>, faults::kKinds> fired{};
    std::array<std::array<std::atomic<std::uint64_t>, faults::kReducerStates>, faults::kKinds>
        in_state{};
    std::array<std::atomic<std::uint64_t>, kMaxFeatures> features{};
    std::array<std::array<std::atomic<std::uint32_t>, kMaxFeatures>, faults::kKinds> by_fault{};
    std::array<std::atomic<std::uint64_t>, kMaxFeatures> smallest{};  // an index and 1; 0: none
  };
  std::atomic<bool> stopping{false};
  std::atomic<std::uint64_t> next{0};  // the position of the next case
  std::array<Worker, kMaxJobs> workers{};
};

Case case_of(const WorkerPlan& plan, std::uint64_t index) {
  if (!plan.around) return generate(plan.seed, index, plan.generate);
  return neighbour(*plan.around, plan.seed, index, plan.generate.capabilities);
}

bool counts_features(std::uint64_t index) { return is_in_sample(index, kFeaturesBits); }

Workers::Workers(WorkerPlan plan) : plan_(std::move(plan)) {
  plan_.jobs = std::clamp(plan_.jobs, 1, kMaxJobs);
}

Workers::~Workers() {
  (void)stop();
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
}

Status Workers::start() {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return refused_by_system("no memory can be shared with the processes that run cases", errno);
  shared_ = new (memory) Shared;
  shared_->next = plan_.first;
  slots_.resize(static_cast<std::size_t>(plan_.jobs));
  for (int w = 0; w < plan_.jobs; ++w) LOCKSTEP_RETURN_IF_ERROR(launch(w));
  return {};
}

Status Workers::launch(int worker) {
  Slot& slot = slots_[static_cast<std::size_t>(worker)];
  slot = {std::make_unique<Child>(remove_net_plan_of), false, HangWatch()};
  const Status status = slot.child->start([this, worker](ChildLine& line) { work(worker, line); });
  slot.done = !status.ok();
  return status;
}

// Returns the index of the next case, unless there is none.
std::optional<std::uint64_t> Workers::take_next() {
  if (shared_->stopping) return std::nullopt;
  const std::uint64_t position = shared_->next++;
  if (plan_.cases == 0 || position - plan_.first < plan_.cases) return plan_.index_at(position);
  --shared_->next;
  return std::nullopt;
}

void Workers::work(int worker, ChildLine& line) {
  Shared::Worker& self = shared_->workers[static_cast<std::size_t>(worker)];
  const auto send = [&](std::uint64_t index, const Outcome& outcome) {
    const nlohmann::json news = {{"index", index}, {"outcome", to_json(outcome)}};
    return line.send(news.dump());
  };
  // This comes first, so that a library which ends the process whenever it is opened ends no more
  // processes than there are cases.
  std::optional<std::uint64_t> taken = take_next();
  if (!taken) return line.finish();
  self.current = *taken;
  // Opening the subject's library may hang, too.
  self.timer.begin(answer_limit(plan_.lane, plan_.subject, Case()));
  if (const Status status = open_subject(plan_.subject); !status.ok()) {
    Outcome outcome;
    outcome.verdict = not_run(status.failure().detail);
    send(self.current, outcome);
    return;
  }
  CaseRunner runner(plan_.lane, plan_.subject);
  runner.set_on_rerun([&self] { self.timer.begin_again(); });
  for (; taken; taken = take_next()) {
    const std::uint64_t i = *taken;
    self.current = i;
    const Case c = case_of(plan_, i);
    self.timer.begin(answer_limit(plan_.lane, plan_.subject, c));
    if (const auto why = plan_.is_metamorphic() ? not_comparable(c) : std::nullopt) {
      count_not_comparable(worker, *why);
      continue;
    }
    const bool twice = plan_.lane == LaneKind::kSim && !plan_.subject.against &&
                       !plan_.is_metamorphic() && is_in_sample(i, kTwiceBits);
    const Verdict verdict = judge_states(twice ? runner.run_twice(c) : runner.run(c),
                                         runner.observation().fired.in_state);
    line.check();
    self.timer.end();
    if (twice) ++self.pairs;
    count(worker, c, runner, verdict);
    const bool is_none = verdict.oracle == "comparable";  // with two subjects
    if (verdict.ok() || (verdict.failing == Failing::kInconclusive && is_none)) continue;
    if (!send(i, outcome_of(verdict, runner.observation()))) break;
  }
  self.timer.end();
  line.finish();
}

void Workers::count_not_comparable(int worker, NotComparable reason) {
  Shared::Worker& self = shared_->workers[static_cast<std::size_t>(worker)];
  ++self.cases;
  ++self.not_comparable[static_cast<std::size_t>(reason)];
}

void Workers::count(int worker, const Case& c, const CaseRunner& runner, const Verdict& verdict) {
  Shared::Worker& self = shared_->workers[static_cast<std::size_t>(worker)];
  ++self.cases;
  if (verdict.failing == Failing::kNotDeterministic) ++self.mismatches;
  self.reruns += runner.reruns();
  std::uint64_t fired = 0;
  const faults::Fired& all = runner.observation().fired;
  for (std::size_t k = 0; k < faults::kKinds; ++k) {
    if (all.counts[k] == 0) continue;
    self.fired[k] += all.counts[k];
    fired += all.counts[k];
    for (std::size_t s = 0; s < faults::kReducerStates; ++s)
      self.in_state[k][s] += all.in_state[k][s];
  }
  for (std::size_t k = 0; k < kUnspecifiedReasons; ++k)
    self.unspecified[k] += verdict.unspecified.counts[k];
  self.errors += verdict.unspecified.errors;
  self.reached += runner.observation().planted.reached;
  self.triggered += runner.observation().planted.triggered;
  if (!interleaved_features(c).empty()) ++self.interleaved;
  if (counts_features(self.current)) {
    ++self.coverage_cases;
    const FeatureSet features = features_of(c);
    const std::optional<Size> size =
        plan_.finds_smallest ? std::optional(size_of(c)) : std::nullopt;
    smallest_.resize(feature_count());
    for (std::size_t f = 0; f < feature_count(); ++f) {
      if (!features.test(f)) continue;
      ++self.features[f];
      if (size && (!smallest_[f] || *size < *smallest_[f])) {
        smallest_[f] = size;
        self.smallest[f] = self.current + 1;
      }
      for (std::size_t k = 0; k < faults::kKinds; ++k)
        if (runner.observation().fired.counts[k] != 0) ++self.by_fault[k][f];
    }
  }
  if (runner.compared_steps() > 0) {
    ++self.compared;
    ++self.switched[static_cast<std::size_t>(c.switched.option)];
  }
  if (runner.compared_steps() == c.program.steps.size()) ++self.compared_whole;
  if (verdict.ok()) ++(fired > 0 ? self.faulted_ok : self.ok);
}

std::optional<Found> Workers::wait(std::chrono::milliseconds limit) {
  if (std::optional<Found> hung = find_hung()) return hung;
  std::vector<pollfd> entries;
  for (const Slot& slot : slots_)
    if (!slot.done) entries.push_back({slot.child->fd(), POLLIN, 0});
  if (entries.empty()) return std::nullopt;
  (void)::poll(entries.data(), entries.size(), static_cast<int>(limit.count()));
  // A worker that has ended may have left its socket to a process that it started.
  for (int w = 0; w < plan_.jobs; ++w)
    if (std::optional<Found> found = collect(w)) return found;
  return std::nullopt;
}

// Reads a worker's message, if there is one.
std::optional<Found> Workers::collect(int worker) {
  Slot& slot = slots_[static_cast<std::size_t>(worker)];
  if (slot.done || !slot.child->has_news()) return std::nullopt;
  // The worker begins no other case before its line has been read, if a subject has written to it
  // (ChildLine::check). So the number of the case is read first.
  const std::uint64_t index = shared_->workers[static_cast<std::size_t>(worker)].current;
  std::string text;
  switch (slot.child->receive(text, std::chrono::milliseconds(0))) {
    case Child::Received::kNothing:
      return std::nullopt;
    case Child::Received::kMessage:
      return read(worker, text);
    case Child::Received::kFinished:
      slot.done = true;
      return std::nullopt;
    case Child::Received::kLost:
      break;
  }
  return lost(worker, index, crash_of(*slot.child, plan_.subject));
}

std::optional<Found> Workers::read(int worker, const std::string& text) {
  const nlohmann::json news = nlohmann::json::parse(text, nullptr, false);
  if (news.is_object() && news.contains("index") && news.contains("outcome")) {
    if (Result<Outcome> outcome = outcome_from_json(news.at("outcome")))
      return Found{news.at("index"), std::move(*outcome)};
  }
  slots_[static_cast<std::size_t>(worker)].child->end();
  return lost(worker, shared_->workers[static_cast<std::size_t>(worker)].current,
              {Failing::kCrash, "crash",
               "the process that ran the case sent an answer that cannot be read"});
}

std::optional<Found> Workers::find_hung() {
  for (int w = 0; w < plan_.jobs; ++w) {
    Slot& slot = slots_[static_cast<std::size_t>(w)];
    const Shared::Worker& shared = shared_->workers[static_cast<std::size_t>(w)];
    const CaseTimer::Running running = shared.timer.running();
    if (slot.done) continue;
    const HangWatch::Found found =
        slot.watch.look(slot.child->group(), running, idle_limit(plan_.lane));
    if (found == HangWatch::Found::kNothing) continue;
    const std::string stacks = slot.child->take_stacks();
    slot.child->end();
    return lost(w, shared.current,
                found == HangWatch::Found::kStarved
                    ? starved_of(running.limit)
                    : hang_of(found, running.taken, plan_.lane, stacks));
  }
  return std::nullopt;
}

// Reports the current case of a lost worker. A new worker takes its place.
Found Workers::lost(int worker, std::uint64_t index, Verdict verdict) {
  Shared::Worker& shared = shared_->workers[static_cast<std::size_t>(worker)];
  Slot& slot = slots_[static_cast<std::size_t>(worker)];
  Found found;
  found.index = index;
  found.outcome.verdict = std::move(verdict);
  ++shared.cases;
  shared.timer.end();
  slot.done = true;
  if (shared_->stopping) return found;
  const Status status = launch(worker);
  if (!status.ok()) problem_ = status.failure().detail;
  return found;
}

bool Workers::all_done() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.done; });
}

void Workers::finish() { shared_->stopping = true; }

std::vector<Workers::InFlight> Workers::in_flight() const {
  std::vector<InFlight> out;
  for (std::size_t w = 0; w < slots_.size(); ++w) {
    const Shared::Worker& shared = shared_->workers[w];
    const CaseTimer::Running running = shared.timer.running();
    if (slots_[w].done || running.limit.count() == 0) continue;
    out.push_back({shared.current, running.taken,
                   std::max(running.limit - running.taken, std::chrono::milliseconds(0))});
  }
  return out;
}

Workers::Stopped Workers::stop() {
  Stopped stopped;
  if (shared_ == nullptr) return stopped;
  finish();
  const std::int64_t limit = now_ms() + kStopLimitMs;
  while (!all_done() && now_ms() < limit)
    if (std::optional<Found> found = wait(std::chrono::milliseconds(50)))
      stopped.found.push_back(std::move(*found));
  stopped.unanswered = in_flight();
  for (Slot& slot : slots_) {
    if (slot.child) slot.child->end();
    slot.done = true;
  }
  return stopped;
}

Totals Workers::totals() const {
  Totals totals;
  if (shared_ == nullptr) return totals;
  totals.next = shared_->next;
  for (int w = 0; w < plan_.jobs; ++w) {
    const Shared::Worker& worker = shared_->workers[static_cast<std::size_t>(w)];
    totals.cases += worker.cases;
    totals.ok += worker.ok;
    totals.faulted_ok += worker.faulted_ok;
    totals.pairs += worker.pairs;
    totals.mismatches += worker.mismatches;
    totals.reruns += worker.reruns;
    totals.compared += worker.compared;
    totals.compared_whole += worker.compared_whole;
    for (std::size_t k = 0; k < totals.switched.size(); ++k)
      totals.switched[k] += worker.switched[k];
    for (std::size_t k = 0; k < kNotComparableReasons; ++k)
      totals.not_comparable[k] += worker.not_comparable[k];
    totals.interleaved += worker.interleaved;
    totals.coverage_cases += worker.coverage_cases;
    totals.planted += {worker.reached, worker.triggered};
    for (std::size_t k = 0; k < faults::kKinds; ++k) {
      totals.fired[k] += worker.fired[k];
      for (std::size_t s = 0; s < faults::kReducerStates; ++s)
        totals.in_state[k][s] += worker.in_state[k][s];
    }
    totals.errors += worker.errors;
    for (std::size_t k = 0; k < kUnspecifiedReasons; ++k)
      totals.unspecified[k] += worker.unspecified[k];
    for (std::size_t f = 0; f < feature_count(); ++f) {
      if (worker.features[f] == 0) continue;
      totals.coverage[feature_name(f)] += worker.features[f];
      if (worker.smallest[f] != 0)
        totals.smallest[feature_name(f)].push_back(worker.smallest[f] - 1);
      for (std::size_t k = 0; k < faults::kKinds; ++k)
        if (worker.by_fault[k][f] != 0)
          totals
              .coverage_by_fault[feature_name(f)][faults::name_of(static_cast<faults::Kind>(k))] +=
              worker.by_fault[k][f];
    }
  }
  return totals;
}

std::size_t Workers::features_seen() const {
  std::size_t seen = 0;
  for (std::size_t f = 0; f < feature_count() && shared_ != nullptr; ++f)
    seen += std::any_of(shared_->workers.begin(), shared_->workers.begin() + plan_.jobs,
                        [f](const Shared::Worker& worker) { return worker.features[f] != 0; })
                ? 1
                : 0;
  return seen;
}

}  // namespace lockstep::properties
