// Properties of whole runs. A failure means that the reducer, the model, the simulator or an oracle
// is wrong: RapidCheck prints the smallest case; `lockstep fuzz` finds it again and saves it as a
// file that replays.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <sstream>

#include "faults/seeded/seeded.h"
#include "faults/sim/scheduler/test_leaks.h"
#include "properties/case/case_json.h"
#include "properties/case/describe.h"
#include "properties/components/component.h"
#include "properties/generate/generate.h"
#include "properties/run/case_runner.h"
#include "properties/shrink/test_arbitrary.h"
#include "reference/model.h"

namespace lockstep::properties {
namespace {

// Claim: whatever the program, the schedule and the faults, the reducer does what the contract
// says. Method: simulation against the model.
RC_GTEST_PROP(SimLane, EveryCaseAgreesWithTheModel, (const Case& c)) {
  static CaseRunner runner(LaneKind::kSim, Subject{});
  const Verdict verdict = runner.run(c);
  if (!verdict.ok()) RC_FAIL(describe(c) + verdict.message);
}

TEST(SimLane, ThousandSeedsRunTwiceTakeTheSameWay) {
  CaseRunner runner(LaneKind::kSim, Subject{});
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const Verdict verdict = runner.run_twice(generate(11, i));
    ASSERT_TRUE(verdict.ok()) << "case " << i << ": " << verdict.message;
  }
}

TEST(SimLane, RecordedDeviationsReplayARandomSchedule) {
  CaseRunner runner(LaneKind::kSim, Subject{});
  int replayed = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    Case c = generate(12, i);
    if (c.schedule.policy == Schedule::Policy::kDefault) continue;
    ASSERT_TRUE(runner.run(c).ok());
    const std::uint64_t hash = runner.observation().trace_hash;
    c.schedule = Schedule();
    for (const auto& [choice, fiber] : runner.observation().deviations)
      c.schedule.deviations.push_back({choice, fiber});
    ASSERT_TRUE(runner.run(c).ok());
    EXPECT_EQ(runner.observation().trace_hash, hash) << "case " << i;
    ++replayed;
  }
  EXPECT_GT(replayed, 50);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // GCC
constexpr bool kIsSlow = true;
#elif defined(__has_feature)  // Clang
constexpr bool kIsSlow = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kIsSlow = false;
#endif

// Whether `fails` says so, and the planted bug has acted. It runs in a process of its own, as the
// bug may also be found by an assertion of the reducer, which ends the process.
bool is_found(const std::function<bool()>& fails) {
  const pid_t child = fork();
  if (child == 0) _exit(fails() && seeded::triggered() > 0 ? EXIT_SUCCESS : EXIT_FAILURE);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return false;
  return WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : WEXITSTATUS(status) == EXIT_SUCCESS;
}

// Every planted bug must be found: the pipeline as a whole can still fail. Those that only a
// component finds are for components_test.cc, and those of Gloo's code for gloo_bugs_test.sh.
bool is_found_elsewhere(const seeded::Bug& bug) {
  return !components::component_of(bug).empty() || bug.oracle == "lane gloo";
}
class EachPlantedBug : public ::testing::TestWithParam<std::string> {};

TEST_P(EachPlantedBug, IsFoundInTwentyThousandCases) {
  if (kIsSlow)
    GTEST_SKIP() << "thousands of cases, 30 times slower with sanitizers; what was found is run "
                    "with them in EveryKeptCaseOfAPlantedBugFailsWithItAlone";
  const simulation::MayLeak deadlocks;
  const Result<Subject> subject = parse_subject("seeded:" + GetParam());
  ASSERT_TRUE(subject.has_value());
  EXPECT_TRUE(is_found([&] {
    CaseRunner runner(LaneKind::kSim, *subject);
    bool fails = false;
    for (std::uint64_t i = 0; i < 20'000 && !fails; ++i) fails = !runner.run(generate(1, i)).ok();
    return fails;
  }));
}

std::vector<std::string> planted_bugs() {
  std::vector<std::string> ids;
  for (const seeded::Bug& bug : seeded::bugs())
    if (!is_found_elsewhere(bug)) ids.emplace_back(bug.id);
  return ids;
}
INSTANTIATE_TEST_SUITE_P(SimLane, EachPlantedBug, ::testing::ValuesIn(planted_bugs()),
                         [](const auto& each) { return each.param; });

TEST(SimLane, ThereAreManyPlantedBugs) { EXPECT_GE(seeded::bugs().size(), 35u); }

// The minimal cases that are kept of planted bugs show them still. To renew one: `lockstep fuzz
// --subject seeded:ID --lane sim --seed 1`.
TEST(SimLane, EveryKeptCaseOfAPlantedBugFailsWithItAlone) {
  const simulation::MayLeak deadlocks;
  for (const seeded::Bug& bug : seeded::bugs()) {
    if (is_found_elsewhere(bug)) continue;
    if (bug.oracle == "ThreadSanitizer") continue;  // ci/races_test finds these, over real Gloo.
    std::string name(bug.id);
    for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
    const Result<Case> c = read_case(std::string(LOCKSTEP_CORPUS) + "/seeded/" + name + ".json");
    ASSERT_TRUE(c.has_value()) << bug.id;
    const Result<Subject> subject = parse_subject("seeded:" + std::string(bug.id));
    ASSERT_TRUE(subject.has_value());
    EXPECT_TRUE(is_found([&] { return !CaseRunner(LaneKind::kSim, *subject).run(*c).ok(); }))
        << bug.id;
    EXPECT_TRUE(CaseRunner(LaneKind::kSim, Subject{}).run(*c).ok()) << bug.id;
  }
}

// Nobody's bits depend on time in this case.
bool is_known(const Case& c) {
  const auto expectation = reference::run(c.program, reference::Contract::lockstep());
  for (const auto& step : expectation.steps) {
    if (step.any_error) return false;
    for (const auto& rank : step.ranks)
      for (const auto& gradient : rank.gradients)
        if (!gradient.known) return false;
  }
  return true;
}

// The order of additions is in these bits, and nothing else that varies.
bool shows_order(const Case& c) {
  return c.program.values == reference::Values::kGeneral && c.program.world >= 3 && is_known(c);
}

// F3: with checks on, whatever is changed on its way ends in an error that names its sender, or in
// the right bits where the change was none.
TEST(SimLane, F3NothingThatIsChangedGoesByUnnoticed) {
  CaseRunner runner(LaneKind::kSim, Subject{});
  std::array<int, faults::kKinds> fired{};
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const Case c = generate(15, i);
    if (!c.program.options.verify) continue;
    const Verdict verdict = runner.run(c);
    ASSERT_TRUE(verdict.ok()) << "case " << i << ": " << verdict.message;
    for (std::size_t k = 0; k < fired.size(); ++k)
      fired[k] += runner.observation().fired.counts[k] > 0 ? 1 : 0;
  }
  for (std::size_t k = 0; k < fired.size(); ++k) {
    const auto kind = static_cast<faults::Kind>(k);
    if (!faults::is_payload(kind)) continue;
    EXPECT_GT(fired[k], 15) << faults::name_of(kind);
  }
}

// F4: whoever is left goes on in a group that is made of the last one, by NCCL and without it, and
// in a new one.
TEST(SimLane, F4GroupsOverNcclAreShrunkAndMadeAnew) {
  CaseRunner runner(LaneKind::kSim, Subject{});
  GenerateOptions options;
  options.transport = reference::Transport::kNccl;
  int shrunk = 0;
  int shrunk_by_nccl = 0;
  int made_anew = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const Case c = generate(81, i, options);
    const Verdict verdict = runner.run(c);
    ASSERT_TRUE(verdict.ok()) << "case " << i << ": " << verdict.message;
    bool has_fewer = false;
    for (const reference::Recovery& recovery : runner.observation().recoveries)
      has_fewer |= recovery.survivors.size() < c.program.world;
    bool is_shrunk = false;
    for (const RankObservation& rank : runner.observation().ranks) {
      is_shrunk |= rank.shrunk > 0;
      shrunk_by_nccl += rank.shrunk_by_nccl > 0 ? 1 : 0;
    }
    shrunk += is_shrunk ? 1 : 0;
    made_anew += has_fewer && !is_shrunk ? 1 : 0;
  }
  EXPECT_GT(shrunk, 20);
  EXPECT_GT(shrunk_by_nccl, 0);
  EXPECT_GT(made_anew, 20);
}

// F4: a job goes on with fewer ranks though nothing has failed. The rank that leaves ends its last
// step like the others.
TEST(SimLane, F4HealthyGroupsOverNcclGoOnWithoutTheirLastRank) {
  CaseRunner runner(LaneKind::kSim, Subject{});
  GenerateOptions options;
  options.transport = reference::Transport::kNccl;
  options.faults = GenerateOptions::Faults::kNone;
  int scaled_down = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const Case c = generate(82, i, options);
    const Verdict verdict = runner.run(c);
    ASSERT_TRUE(verdict.ok()) << "case " << i << ": " << verdict.message;
    scaled_down += runner.observation().ranks[0].scaled_down > 0 ? 1 : 0;
  }
  EXPECT_GT(scaled_down, 20);
}

using Bits = std::vector<std::vector<std::uint64_t>>;  // by rank

Bits bits_of(const Observation& observation) {
  Bits bits;
  for (const RankObservation& rank : observation.ranks) bits.push_back(rank.bits);
  return bits;
}

// Metamorphic: where gradients lie, how many travel together, in which order and when changes no
// bit, neither of what the contract says nor of what the reducer does.
TEST(SimLane, RankOrderedBitsDoNotDependOnBucketsViewsChecksNorTheSchedule) {
  CaseRunner runner(LaneKind::kSim, Subject{});
  GenerateOptions options;
  // Options change below, and with them what a rank that does not fit is refused for.
  options.capabilities = options.capabilities.without(Capability::kDisagreements);
  options.faults = GenerateOptions::Faults::kNone;
  int compared = 0;
  int order_mattered = 0;
  int rebuilt = 0;
  for (std::uint64_t i = 0; compared < 300; ++i) {
    Case c = generate(14, i, options);
    if (!shows_order(c)) continue;
    // Two of one group may start their collectives in other orders on other ranks (F7).
    if (reference::reducer_count(c.program) > 1 && !c.program.options.group_each) continue;
    c.program.options.pinned = 0;
    using reference::Launch;
    const auto bits_with = [&](reference::Order order, std::uint64_t limit, bool views,
                               bool rebuild = false, Launch launch = Launch::kOverlapped) {
      c.program.options.rebuild = rebuild;
      c.program.options.launch = launch;
      c.program.options.order = order;
      c.program.options.verify = order == reference::Order::kRankOrder && limit == 64;
      c.program.options.first_bucket_bytes = c.program.options.bucket_bytes = limit;
      c.program.options.last_bucket_bytes = 0;
      c.program.options.views = views;
      const Verdict verdict = runner.run(c);
      EXPECT_TRUE(verdict.ok()) << "case " << i << ": " << verdict.message;
      return bits_of(runner.observation());
    };
    using reference::Order;
    const auto bits = bits_with(Order::kRankOrder, 1, false);
    ASSERT_EQ(bits_with(Order::kRankOrder, 1 << 20, false), bits) << "case " << i;
    ASSERT_EQ(bits_with(Order::kRankOrder, 64, true), bits) << "case " << i;
    ASSERT_EQ(bits_with(Order::kRankOrder, 64, true, true), bits) << "case " << i;
    rebuilt += runner.observation().ready_orders().empty() ? 0 : 1;
    ASSERT_EQ(bits_with(Order::kRankOrder, 16, false, false, Launch::kAfterBackward), bits)
        << "case " << i;
    order_mattered += bits_with(Order::kRing, 1, false) != bits_with(Order::kRing, 1 << 20, false);
    ++compared;
  }
  EXPECT_GT(order_mattered, 30);  // of the ring's bits the same cannot be said
  EXPECT_GT(rebuilt, 60);
}

// Metamorphic: nor do they depend on what moves them: links of the simulator, an NCCL, sockets; nor
// on where ranks run: fibers, threads of one process, a process each.
TEST(Lanes, RankOrderedBitsDoNotDependOnTheTransportNorOnWhereRanksRun) {
  CaseRunner sim(LaneKind::kSim, Subject{});
  CaseRunner gloo(LaneKind::kGloo, Subject{});
  GenerateOptions options;
  options.lane = GenerateOptions::Lane::kGloo;
  options.faults = GenerateOptions::Faults::kNone;
  int compared = 0;
  int order_mattered = 0;
  for (std::uint64_t i = 0; compared < 40; ++i) {
    Case c = generate(17, i, options);
    if (!shows_order(c)) continue;
    if (needed(c).has(Capability::kErrors) || has_absent_rank(c.program)) continue;
    // A GPU is one device, and has no PowerSGD: these would be other programs there.
    if (c.program.options.hook == reference::Hook::kPowerSgd) continue;
    const auto& parameters = c.program.parameters;
    const auto is_elsewhere = [](const auto& parameter) { return parameter.device != 0; };
    if (std::any_of(parameters.begin(), parameters.end(), is_elsewhere)) continue;
    c.environment.processes = false;  // a thread each, unless a fault needs a process
    c.program.options.order = reference::Order::kRankOrder;
    const auto bits_in = [&](CaseRunner& runner, reference::Transport transport) {
      c.program.options.transport = transport;
      Case whole = c;
      normalize(whole);
      const Verdict verdict = runner.run(whole);
      EXPECT_TRUE(verdict.ok()) << "case " << i << ": " << verdict.message;
      return bits_of(runner.observation());
    };
    using reference::Transport;
    const Bits bits = bits_in(sim, Transport::kHost);
    ASSERT_EQ(bits_in(sim, Transport::kNccl), bits) << "case " << i;
    ASSERT_EQ(bits_in(gloo, Transport::kHost), bits) << "case " << i;
    faults::Fault never;
    never.kind = faults::Kind::kRankPause;
    never.step = static_cast<std::uint32_t>(c.program.steps.size());
    c.faults.faults = {never};
    ASSERT_EQ(bits_in(gloo, Transport::kHost), bits) << "case " << i;
    c.faults.faults.clear();
    c.program.options.order = reference::Order::kRing;
    order_mattered += bits_in(sim, Transport::kHost) != bits;
    ++compared;
  }
  EXPECT_GT(order_mattered, 4);
}

// What the ranks held after `step` and later.
Bits bits_from(const Case& c, const Observation& observation, std::uint32_t step) {
  Bits bits;
  for (const RankObservation& rank : observation.ranks) {
    bits.emplace_back();
    for (const ObservedStep& each : rank.steps) {
      for (std::size_t p = 0; each.step >= step && p < each.gradients.size(); ++p) {
        const ObservedGradient& gradient = each.gradients[p];
        bits.back().push_back(gradient.defined ? 1 : 0);
        if (!gradient.defined) continue;
        const auto begin = rank.bits.begin() + static_cast<std::ptrdiff_t>(gradient.offset);
        bits.back().insert(
            bits.back().end(), begin,
            begin + static_cast<std::ptrdiff_t>(reference::element_count(c.program.parameters[p])));
      }
    }
  }
  return bits;
}

// Static mode counts anew (P11): what was used before the stop alone is not reduced after it.
bool defines_the_same(const reference::Program& whole, const reference::Program& rest) {
  const auto contract = reference::Contract::lockstep();
  const auto expected = reference::run(whole, contract).steps;
  const auto resumed = reference::run(rest, contract).steps;
  const std::size_t stop = expected.size() - resumed.size();
  for (std::size_t s = 0; s < resumed.size(); ++s)
    for (std::size_t r = 0; r < whole.world; ++r)
      for (std::size_t p = 0; p < whole.parameters.size(); ++p) {
        const auto& before = expected[stop + s].ranks[r].gradients[p];
        const auto& after = resumed[s].ranks[r].gradients[p];
        if (before.defined != after.defined || before.reduced != after.reduced) return false;
      }
  return true;
}

// Metamorphic (P17): a run is stopped after its buckets were rebuilt, and its layout saved. A new
// object on new process groups, with that layout, goes on with the bits of a run without a stop.
// Bits of a ring depend on the layout; how often is counted by going on without it.
TEST(SimLane, ARunThatGoesOnWithItsSavedLayoutHasTheBitsOfOneThatDidNotStop) {
  CaseRunner runner(LaneKind::kSim, Subject{});
  Subject saves;
  saves.saves_layout = true;
  CaseRunner saving(LaneKind::kSim, saves);
  GenerateOptions options;
  options.capabilities = options.capabilities.without(Capability::kDisagreements)
                             .without(Capability::kLaterBackward);  // a new run holds nothing
  options.faults = GenerateOptions::Faults::kNone;
  int compared = 0;
  int layout_mattered = 0;
  int is_static = 0;
  for (std::uint64_t i = 0; compared < 200; ++i) {
    Case c = generate(15, i, options);
    reference::Replicated& chosen = c.program.options;
    chosen.rebuild = true;
    chosen.pinned = 0;
    chosen.launch = reference::Launch::kOverlapped;
    chosen.order = reference::Order::kRing;
    chosen.verify = false;
    chosen.join = reference::Join::kNone;  // its inputs count from the first step
    c.program.rejoin_step = c.program.recreate_before_step = 0;  // numbers of steps, too
    c.program.bad_number = {};
    if (reference::reducer_count(c.program) > 1 || chosen.two_groups) continue;  // one layout
    c.program.values = reference::Values::kGeneral;
    if (c.program.world < 3 || !is_known(c)) continue;
    if (chosen.hook == reference::Hook::kPowerSgd) continue;  // what it keeps is not saved
    const Verdict whole = runner.run(c);
    ASSERT_TRUE(whole.ok()) << "case " << i << ": " << whole.message;
    const auto orders = runner.observation().ready_orders();
    const std::uint32_t stop = orders.empty() ? 0 : orders[0].step + 1;
    if (stop == 0 || stop >= c.program.steps.size()) continue;
    // A checkpoint has no gradients in it; a rank that skips a step keeps those it has.
    const reference::Step& next = c.program.steps[stop];
    if (next.zero_grad != reference::ZeroGrad::kUndefine ||
        next.kind == reference::PassKind::kNoGrad)
      continue;
    const Bits uninterrupted = bits_from(c, runner.observation(), stop);
    Case rest = c;
    rest.program.steps.erase(rest.program.steps.begin(), rest.program.steps.begin() + stop);
    if (chosen.mode == reference::Mode::kStatic) {
      if (!is_known(rest) || !defines_the_same(c.program, rest.program)) continue;
      ++is_static;
    }

    Case first = c;
    first.program.steps.resize(stop);
    ASSERT_TRUE(saving.run(first).ok()) << "case " << i;
    Subject resumed;
    resumed.pinned_layout = saving.observation().ranks[0].layout;
    CaseRunner going_on(LaneKind::kSim, resumed);
    (void)going_on.run(rest);  // the model does not know of the layout, so it is no judge here
    ASSERT_EQ(bits_from(c, going_on.observation(), 0), uninterrupted) << "case " << i;
    (void)runner.run(rest);
    layout_mattered += bits_from(c, runner.observation(), 0) != uninterrupted;
    ++compared;
  }
  EXPECT_GT(layout_mattered, 20);
  EXPECT_GT(is_static, 10);
}

// Metamorphic (P13, P14): the way in which a program is run changes no bit where the layout and the
// order of additions are the same.
TEST(SimLane, BitsDoNotDependOnTheScheduleNorOnWhoSyncs) {
  CaseRunner runner(LaneKind::kSim, Subject{});
  GenerateOptions options;
  // Options change below, and with them what a rank that does not fit is refused for.
  options.capabilities = options.capabilities.without(Capability::kDisagreements);
  options.faults = GenerateOptions::Faults::kNone;
  int compared = 0;
  for (std::uint64_t i = 0; compared < 200; ++i) {
    Case c = generate(16, i, options);
    if (c.program.values == reference::Values::kSpecial || !is_known(c)) continue;
    // Two of one group may start their collectives in other orders on other ranks (F7).
    if (reference::reducer_count(c.program) > 1 && !c.program.options.group_each) continue;
    c.program.options.rebuild = false;
    c.program.options.first_bucket_bytes = c.program.options.bucket_bytes;
    c.program.options.last_bucket_bytes = 0;
    // With manual sync, normalize() removes checkpoints around the whole model; and it would take
    // back the bytes of the first bucket where all are reduced after the backward (P14).
    c.program.options.manual_sync = true;
    c.program.options.launch = reference::Launch::kOverlapped;
    normalize(c);
    const auto bits_with = [&](reference::Launch launch, bool own_group, bool manual_sync) {
      c.program.options.launch = launch;
      c.program.options.own_group = own_group;
      c.program.options.manual_sync = manual_sync;
      const Verdict verdict = runner.run(c);
      EXPECT_TRUE(verdict.ok()) << "case " << i << ": " << verdict.message;
      return bits_of(runner.observation());
    };
    using reference::Launch;
    const Bits bits = bits_with(Launch::kOverlapped, false, false);
    ASSERT_EQ(bits_with(Launch::kOverlapped, false, true), bits) << "case " << i;
    ASSERT_EQ(bits_with(Launch::kAfterBackward, false, false), bits) << "case " << i;
    ASSERT_EQ(bits_with(Launch::kAfterBackward, true, true), bits) << "case " << i;
    ++compared;
  }
}

TEST(Lanes, TheSameCaseHasTheSameBitsInSimulationAndOnGloo) {
  CaseRunner sim(LaneKind::kSim, Subject{});
  CaseRunner gloo(LaneKind::kGloo, Subject{});
  GenerateOptions options;
  options.lane = GenerateOptions::Lane::kGloo;
  options.faults = GenerateOptions::Faults::kNone;
  int compared = 0;
  for (std::uint64_t i = 0; compared < 40 && i < 400; ++i) {
    Case c = generate(13, i, options);
    c.environment.processes = false;
    if (needed(c).has(Capability::kErrors) || has_absent_rank(c.program)) continue;
    const Verdict in_sim = sim.run(c);
    const Verdict on_gloo = gloo.run(c);
    ASSERT_TRUE(in_sim.ok()) << in_sim.message;
    ASSERT_TRUE(on_gloo.ok()) << on_gloo.message;
    if (c.program.values != reference::Values::kSpecial) {  // the bits of a NaN are not specified
      for (std::size_t r = 0; r < c.program.world; ++r) {
        EXPECT_EQ(sim.observation().ranks[r].bits, gloo.observation().ranks[r].bits)
            << "case " << i;
      }
    }
    ++compared;
  }
  EXPECT_EQ(compared, 40);
}

}  // namespace
}  // namespace lockstep::properties
