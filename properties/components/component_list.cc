// The components of one build of the reducer. Compiled once for each.
#include <fmt/format.h>

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "faults/injector.h"
#include "faults/sim/device/sim_device.h"
#include "faults/sim/nccl/nccl_profile.h"
#include "faults/sim/nccl/sim_nccl.h"
#include "faults/sim/network.h"
#include "faults/sim/scheduler/scheduler.h"
#include "properties/components/checks.h"
#include "properties/components/component.h"
#include "properties/components/nccl_calls.h"
#include "properties/components/nccl_group.h"
#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using components::Component;
using properties::Failing;
using properties::Verdict;

// A component has the one scheduler of the process, one run after the other.
simulation::Scheduler& scheduler() {
  static simulation::Scheduler only;
  return only;
}

simulation::Schedule draw_schedule(Choices& choices) {
  using simulation::Policy;
  constexpr std::array kPolicies{Policy::kDefault, Policy::kRandomWalk, Policy::kStayBiased,
                                 Policy::kPos};
  simulation::Schedule schedule;
  schedule.policy = kPolicies[choices.below(kPolicies.size())];
  if (schedule.policy != Policy::kDefault) schedule.seed = choices.word();
  return schedule;
}

Verdict wrong(const std::string& what) { return {Failing::kWrongError, "component", what}; }

// Runs the fibers that were spawned, and says how they ended.
Verdict run_fibers() {
  const simulation::Outcome& outcome = scheduler().run();
  if (outcome.end == simulation::End::kDeadlock)
    return {Failing::kDeadlock, "progress", outcome.wait_graph};
  if (outcome.end == simulation::End::kLivelock)
    return {Failing::kLivelock, "progress", outcome.wait_graph};
  if (const auto& late = scheduler().late_wait())  // Nobody does that (F1).
    return wrong(fmt::format(
        "it waited at {} until the deadline, although what it waited for had come before",
        late->at));
  if (const auto cycles = scheduler().lock_order_violations(); !cycles.empty())
    return {Failing::kRace, "race", "mutexes are locked in different orders: " + cycles.front()};
  return {};
}

// A check that needs one fiber, and those that it starts.
template <std::string (*check)(Choices&)>
Verdict judge(Choices& choices) {
  scheduler().reset(draw_schedule(choices));
  // After a deadlock this stays, as what is left of the fibers points to it.
  auto flaw = std::make_unique<std::string>();
  scheduler().spawn("rank", 0, [&choices, &flaw = *flaw] { flaw = check(choices); });
  Verdict verdict = run_fibers();
  if (verdict.failing == Failing::kDeadlock || verdict.failing == Failing::kLivelock)
    static_cast<void>(flaw.release());
  else if (!flaw->empty())
    verdict = wrong(*flaw);
  return verdict;
}

// ---- Groups over NCCL ----

struct NcclRank {
  int rank = 0;
  Choices choices;
  std::string flaw;
  std::string race;
};

struct NcclWorld {
  faults::Injector injector;
  simulated::SimNetwork network;
  std::shared_ptr<Store> store = std::make_shared<HashStore>();
  std::unique_ptr<simulated::SimNccl> nccl;
  NcclApi api;
  std::vector<NcclRank> ranks;
};

simulated::SimNcclOptions draw_nccl(Choices& choices) {
  constexpr std::array kReleases{22809, 22707, 23203};
  simulated::SimNcclOptions options;
  options.version = kReleases[choices.below(kReleases.size())];
  options.aborts_lose = true;
  return options;
}

using RankOfNccl = std::function<void(NcclWorld&, NcclRank&, simulated::SimDevice& gpu)>;

void run_rank(NcclWorld& world, NcclRank& rank, const RankOfNccl& act) {
  simulated::SimDevice gpu;
  act(world, rank, gpu);
  if (!gpu.findings().empty()) rank.race = gpu.findings().front().to_string();
}

Verdict judge_ranks(const NcclWorld& world) {
  for (const NcclRank& rank : world.ranks)
    if (!rank.flaw.empty()) return wrong(rank.flaw);
  for (const NcclRank& rank : world.ranks)
    if (!rank.race.empty()) return {Failing::kRace, "race", rank.race};
  if (!world.nccl->misuses().empty())
    return {Failing::kRace, "race", "NCCL: " + world.nccl->misuses().front()};
  if (world.nccl->open_communicators() > 0)
    return {Failing::kLeak, "leak", "a communicator was neither aborted nor destroyed"};
  return {};
}

// Lets `act` run on `size` ranks, which have equal choices, and judges what they say and leave.
Verdict judge_nccl(Choices& choices, int size, const simulated::SimNcclOptions& options,
                   const RankOfNccl& act) {
  using std::chrono::microseconds;
  auto world = std::make_unique<NcclWorld>();
  simulated::Latency latency;
  if (choices.percent(50)) latency = {microseconds(50), microseconds(200)};
  const simulation::Schedule schedule = draw_schedule(choices);
  scheduler().reset(schedule);
  world->injector.reset({}, static_cast<std::uint32_t>(size), 1);
  world->network.reset(scheduler(), world->injector, latency, schedule.seed);
  world->nccl = std::make_unique<simulated::SimNccl>(world->network, options);
  world->api = world->nccl->api();
  for (int rank = 0; rank < size; ++rank) world->ranks.push_back({rank, choices, {}, {}});
  for (NcclRank& rank : world->ranks) {
    const auto number = static_cast<std::uint32_t>(rank.rank);
    world->injector.begin_step(number, 0);
    scheduler().spawn("rank", number,
                      [&world = *world, &rank, &act] { run_rank(world, rank, act); });
  }
  Verdict verdict = run_fibers();
  for (const NcclRank& rank : world->ranks)
    if (rank.choices.made().size() > choices.made().size()) choices = rank.choices;
  if (verdict.failing == Failing::kDeadlock || verdict.failing == Failing::kLivelock) {
    simulated::SimNccl::abandon();
    static_cast<void>(world.release());  // What is left of the fibers points to it.
    return verdict;
  }
  if (Verdict of_ranks = judge_ranks(*world); !of_ranks.ok()) verdict = std::move(of_ranks);
  return verdict;
}

Verdict judge_nccl_group(Choices& choices) {
  const int size = static_cast<int>(choices.between(2, 4));
  const std::uint32_t scenario = choices.below(kGroupScenarios);
  const simulated::SimNcclOptions options = draw_nccl(choices);
  const bool notices = faults::nccl_profile(options.version).reports_network_errors;
  return judge_nccl(choices, size, options, [=](NcclWorld& world, NcclRank& rank, auto& gpu) {
    rank.flaw = check_nccl_group(world.api, gpu, world.store,
                                 {"check", rank.rank, size, scenario, notices}, rank.choices);
  });
}

// The first rank makes wrong calls of a group; then all ranks leave it.
Verdict judge_nccl_calls(Choices& choices) {
  const int size = static_cast<int>(choices.between(1, 3));
  const simulated::SimNcclOptions options = draw_nccl(choices);
  return judge_nccl(choices, size, options, [=](NcclWorld& world, NcclRank& rank, auto& gpu) {
    NcclOptions of_group;
    of_group.timeout = of_group.connect_timeout = std::chrono::minutes(1);
    of_group.poll = of_group.notice = std::chrono::milliseconds(20);
    of_group.name = "calls";
    auto made = NcclProcessGroup::connect(world.api, gpu, world.store, rank.rank, size, of_group);
    if (!made)
      rank.flaw = "a group cannot connect: " + made.error().to_string();
    else if (rank.rank == 0)
      rank.flaw = check_nccl_calls(world.api, gpu, **made);
  });
}

// Sorted by name.
constexpr Component kComponents[] = {
    {"abort", "what the abort of a reducer, and its end amid a pass, tell peers (F5)",
     judge<check_abort>},
    {"agreement", "what ranks compare at a construction (B4)", judge<check_agreement>},
    {"failure-board", "whom ranks take for the cause, by the reports of all (F2)",
     judge<check_failure_board>},
    {"failure-cause", "whether ranks name the one that stopped them, by what each saw (F2)",
     judge<check_failure_cause>},
    {"frames", "which frames of a verified collective a rank takes (F3)", judge<check_frames>},
    {"group-failure", "what a reducer makes of a failure of its group (F2, P12)",
     judge<check_group_failure>},
    {"headers", "how collectives are told apart and described (F6)", judge<check_headers>},
    {"layouts", "which layouts of buckets are taken or refused (B3, B5)", judge<check_layouts>},
    {"lone-rank", "a rank that goes on after mishaps, with a peer that is played (P12, F4, S2)",
     judge<check_lone_rank>},
    {"mismatches", "whom ranks suspect that have entered different collectives (F6)",
     judge<check_mismatches>},
    {"names", "which collective and rank a failure names (F2, F5, F7)", judge<check_names>},
    {"nccl-calls", "wrong calls of a group over NCCL, which it has to refuse (B5, F4)",
     judge_nccl_calls},
    {"nccl-group", "what a group over NCCL tells its ranks, and how it ends (F1 to F5)",
     judge_nccl_group},
    {"placement", "models on devices of two kinds (B5, F8, P15)", judge<check_placement>},
    {"roster", "a process that asks a store for a roster (F9)", judge<check_roster>},
    {"rows", "rows of a sparse gradient that peers send (F3)", judge<check_rows>},
    {"shared-memory", "collectives of ranks that share memory (F1, F2, F6, G3)",
     judge<check_shared_memory>},
    {"staged-group", "a group that goes through host memory, and its GPU (F1, F2, F3, F8)",
     judge<check_staged_group>},
    {"uneven-inputs", "what ranks with uneven inputs decide (S2)", judge<check_uneven_inputs>},
    {"waits", "how long a caller waits behind a group, and what it learns (F1)",
     judge<check_waits>},
};

}  // namespace

std::span<const Component> component_list() { return kComponents; }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
