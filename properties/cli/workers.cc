#include "properties/cli/workers.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "properties/cli/server.h"
#include "properties/generate/features.h"
#include "properties/lane/case_runner.h"
#include "properties/lane/message.h"
#include "properties/lane/nccl_lane.h"

namespace lockstep::properties {
namespace {

constexpr int kMaxJobs = 64;
constexpr std::uint64_t kTwiceEvery = 64;     // one case in so many is run twice (sim)
constexpr std::uint64_t kFeaturesEvery = 16;  // and one in so many is looked at for coverage

std::int64_t now_ms() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

}  // namespace

// In memory shared with the workers; each field is written by one worker.
struct Workers::Shared {
  struct Worker {
    std::atomic<std::uint64_t> current{0};
    std::atomic<std::int64_t> since_ms{0};  // of the case at hand; 0: none
    std::atomic<std::uint64_t> cases{0}, ok{0}, faulted_ok{0}, pairs{0}, mismatches{0},
        coverage_cases{0}, compared{0}, compared_whole{0}, reached{0}, triggered{0};
    std::array<std::atomic<std::uint64_t>, faults::kKinds> fired{};
    std::array<std::atomic<std::uint64_t>, kFeatures> features{};
  };
  std::atomic<bool> stopping{false};
  std::array<Worker, kMaxJobs> workers{};
};

Workers::Workers(WorkerPlan plan) : plan_(std::move(plan)) {
  plan_.jobs = std::clamp(plan_.jobs, 1, kMaxJobs);
}

Workers::~Workers() {
  stop();
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
}

Status Workers::start() {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return Status(Code::kInternal, fmt::format("mmap: {}", std::strerror(errno)));
  shared_ = new (memory) Shared;
  slots_.resize(static_cast<std::size_t>(plan_.jobs));
  for (int w = 0; w < plan_.jobs; ++w)
    LOCKSTEP_RETURN_IF_ERROR(launch(w, static_cast<std::uint64_t>(w)));
  return {};
}

Status Workers::launch(int worker, std::uint64_t first) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    return Status(Code::kInternal, fmt::format("socketpair: {}", std::strerror(errno)));
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Status(Code::kInternal, fmt::format("fork: {}", std::strerror(errno)));
  if (pid == 0) {
    ::close(fds[0]);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);
    ::setpgid(0, 0);  // Ctrl-C is for the parent, which stops its workers in order
    work(worker, first, fds[1]);
  }
  ::close(fds[1]);
  slots_[static_cast<std::size_t>(worker)] = {pid, fds[0], false};
  return {};
}

void Workers::work(int worker, std::uint64_t first, int fd) {
  Shared::Worker& self = shared_->workers[static_cast<std::size_t>(worker)];
  CaseRunner runner(plan_.lane, plan_.subject);
  for (std::uint64_t i = first; plan_.cases == 0 || i < plan_.cases;
       i += static_cast<std::uint64_t>(plan_.jobs)) {
    if (shared_->stopping) break;
    self.current = i;
    self.since_ms = now_ms();
    const Case c = generate(plan_.seed, i, plan_.generate);
    const bool twice =
        plan_.lane == LaneKind::kSim && !plan_.subject.against && i % kTwiceEvery == 0;
    const Verdict verdict = twice ? runner.run_twice(c) : runner.run(c);
    ++self.cases;
    if (twice) ++self.pairs;
    if (verdict.failing == Failing::kNotDeterministic) ++self.mismatches;
    std::uint64_t fired = 0;
    for (std::size_t k = 0; k < faults::kKinds; ++k) {
      self.fired[k] += runner.observation().fired.counts[k];
      fired += runner.observation().fired.counts[k];
    }
    self.reached += runner.observation().planted.reached;
    self.triggered += runner.observation().planted.triggered;
    if (i % kFeaturesEvery == 0) {
      ++self.coverage_cases;
      const FeatureSet features = features_of(c);
      for (std::size_t f = 0; f < kFeatures; ++f)
        if (features.test(f)) ++self.features[f];
    }
    if (runner.compared_steps() > 0) ++self.compared;
    if (runner.compared_steps() == c.program.steps.size()) ++self.compared_whole;
    if (verdict.ok()) ++(fired > 0 ? self.faulted_ok : self.ok);
    if (verdict.ok() || verdict.failing == Failing::kInconclusive) continue;
    const nlohmann::json news = {{"index", i},
                                 {"outcome", to_json(outcome_of(verdict, runner.observation()))}};
    if (!send_message(fd, news.dump())) break;
  }
  self.since_ms = 0;
  ::_exit(0);
}

std::optional<Found> Workers::wait(std::chrono::milliseconds limit) {
  if (std::optional<Found> hung = find_hung()) return hung;
  std::vector<pollfd> entries;
  std::vector<int> owners;
  for (int w = 0; w < plan_.jobs; ++w) {
    if (slots_[static_cast<std::size_t>(w)].done) continue;
    entries.push_back({slots_[static_cast<std::size_t>(w)].fd, POLLIN, 0});
    owners.push_back(w);
  }
  if (entries.empty()) return std::nullopt;
  if (::poll(entries.data(), entries.size(), static_cast<int>(limit.count())) <= 0)
    return std::nullopt;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    if (entries[e].revents == 0) continue;
    if (std::optional<Found> found = collect(owners[e])) return found;
  }
  return std::nullopt;
}

// Reads a worker's news. One that closed its end has come to its end, or has crashed.
std::optional<Found> Workers::collect(int worker) {
  Slot& slot = slots_[static_cast<std::size_t>(worker)];
  std::string text;
  if (receive_message(slot.fd, text, std::chrono::seconds(10)) == Receive::kMessage) {
    const nlohmann::json news = nlohmann::json::parse(text);
    Found found;
    found.index = news.at("index");
    if (Result<Outcome> outcome = outcome_from_json(news.at("outcome")))
      found.outcome = std::move(*outcome);
    return found;
  }
  int status = 0;
  ::waitpid(slot.pid, &status, 0);
  remove_net_plan_of(slot.pid);
  ::kill(-slot.pid, SIGKILL);  // ranks that it may have left behind
  ::close(slot.fd);
  slot = {-1, -1, true};
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  return lost(worker, {Failing::kCrash, "crash",
                       "the process that ran the case was " + describe_end(status)});
}

std::optional<Found> Workers::find_hung() {
  const std::int64_t limit = CaseServer(plan_.lane, plan_.subject).default_limit().count();
  for (int w = 0; w < plan_.jobs; ++w) {
    if (slots_[static_cast<std::size_t>(w)].done) continue;
    const std::int64_t since = shared_->workers[static_cast<std::size_t>(w)].since_ms;
    if (since == 0 || now_ms() - since < limit) continue;
    reap(w);
    return lost(
        w, {Failing::kDeadlock, "progress",
            fmt::format("the process that ran the case gave no answer within {} s", limit / 1000)});
  }
  return std::nullopt;
}

// The case that a worker had at hand when it was lost; a new worker goes on behind it.
Found Workers::lost(int worker, Verdict verdict) {
  Shared::Worker& shared = shared_->workers[static_cast<std::size_t>(worker)];
  Found found;
  found.index = shared.current;
  found.outcome.verdict = std::move(verdict);
  ++shared.cases;
  shared.since_ms = 0;
  if (!shared_->stopping)
    launch(worker, found.index + static_cast<std::uint64_t>(plan_.jobs)).ignore();
  return found;
}

void Workers::reap(int worker) {
  Slot& slot = slots_[static_cast<std::size_t>(worker)];
  if (slot.done) return;
  ::kill(-slot.pid, SIGKILL);
  ::kill(slot.pid, SIGKILL);
  ::waitpid(slot.pid, nullptr, 0);
  remove_net_plan_of(slot.pid);
  ::close(slot.fd);
  slot = {-1, -1, true};
}

bool Workers::all_done() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.done; });
}

void Workers::stop() {
  if (shared_ == nullptr) return;
  shared_->stopping = true;
  const std::int64_t limit = now_ms() + 2000;
  for (int w = 0; w < static_cast<int>(slots_.size()); ++w) {
    Slot& slot = slots_[static_cast<std::size_t>(w)];
    while (!slot.done && now_ms() < limit) {
      pollfd entry{slot.fd, POLLIN, 0};
      if (::poll(&entry, 1, 50) > 0) (void)collect(w);
    }
    reap(w);
  }
}

Totals Workers::totals() const {
  Totals totals;
  if (shared_ == nullptr) return totals;
  for (int w = 0; w < plan_.jobs; ++w) {
    const Shared::Worker& worker = shared_->workers[static_cast<std::size_t>(w)];
    totals.cases += worker.cases;
    totals.ok += worker.ok;
    totals.faulted_ok += worker.faulted_ok;
    totals.pairs += worker.pairs;
    totals.mismatches += worker.mismatches;
    totals.compared += worker.compared;
    totals.compared_whole += worker.compared_whole;
    totals.coverage_cases += worker.coverage_cases;
    totals.planted += {worker.reached, worker.triggered};
    for (std::size_t k = 0; k < faults::kKinds; ++k) totals.fired[k] += worker.fired[k];
    for (std::size_t f = 0; f < kFeatures; ++f)
      if (worker.features[f] != 0) totals.coverage[feature_name(f)] += worker.features[f];
  }
  return totals;
}

}  // namespace lockstep::properties
