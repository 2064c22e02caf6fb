#include "properties/generate/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <string_view>

#include "properties/case/case_json.h"
#include "properties/case/fields.h"
#include "properties/generate/fault_plan.h"
#include "properties/generate/features.h"
#include "properties/generate/graph.h"
#include "properties/generate/random.h"
#include "properties/generate/rows.h"
#include "properties/shrink/test_arbitrary.h"
#include "reference/arithmetic.h"
#include "reference/model.h"

namespace lockstep::properties {
namespace {

using reference::Program;

constexpr std::uint64_t kCases = 10'000;

std::size_t index_of(const std::string& feature) {
  for (std::size_t i = 0; i < feature_count(); ++i)
    if (feature == feature_name(i)) return i;
  ADD_FAILURE() << "no feature is called " << feature;
  return 0;
}

TEST(Features, HaveNamesOfTheirOwn) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < feature_count(); ++i)
    EXPECT_TRUE(seen.insert(feature_name(i)).second) << feature_name(i);
  EXPECT_GE(feature_count(), 385u);  // a row that loses its feature would be missed by nobody
}

// A program has no pair of features of which one excludes the other.
TEST(Features, ExcludedPairsAreNotCounted) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < feature_count(); ++i) names.insert(feature_name(i));
  for (const std::string way : {"two reducers", "a reducer after another"}) {
    EXPECT_TRUE(names.contains(way + ", manual sync")) << way;
    EXPECT_TRUE(names.contains(way + ", after backward")) << way;
    EXPECT_FALSE(names.contains(way + ", uneven inputs")) << way;
  }
  EXPECT_TRUE(names.contains("replicas, uneven inputs"));
}

TEST(Generate, ReachesEveryFeatureInOneCaseOfAHundred) {
  std::array<std::uint64_t, kMaxFeatures> counts{};
  std::array<std::uint64_t, faults::kKinds> kinds{};
  std::uint64_t legal_plain = 0;
  const std::size_t plain = index_of("mode plain");
  const std::size_t legal = index_of("legal program");
  for (std::uint64_t index = 0; index < kCases; ++index) {
    const Case value = generate(2, index);
    const FeatureSet found = features_of(value);
    for (std::size_t i = 0; i < feature_count(); ++i) counts[i] += found.test(i) ? 1 : 0;
    legal_plain += found.test(plain) && found.test(legal) ? 1 : 0;
    std::set<faults::Kind> drawn;
    for (const faults::Fault& fault : value.faults.faults) drawn.insert(fault.kind);
    for (const faults::Kind kind : drawn) ++kinds[static_cast<std::size_t>(kind)];
  }
  const auto check = [](const std::string& name, std::uint64_t count) {
    const bool is_dear =
        name.starts_with("257 ");  // one such case costs as much as a hundred others
    EXPECT_GE(count, is_dear ? kCases / 2000 : kCases / 100) << name;
    std::printf("%6.2f %%  %s\n", 100.0 * static_cast<double>(count) / kCases, name.c_str());
  };
  for (std::size_t i = 0; i < feature_count(); ++i) check(feature_name(i), counts[i]);
  for (std::size_t i = 0; i < kinds.size(); ++i)
    if (faults::is_network(static_cast<faults::Kind>(i)) ||
        faults::is_of_node(static_cast<faults::Kind>(i)))
      EXPECT_EQ(kinds[i], 0U) << faults::name_of(
          static_cast<faults::Kind>(i));  // the lane hosts has it
    else
      check(std::string("fault ") + faults::name_of(static_cast<faults::Kind>(i)), kinds[i]);
  // Most programs are legal, and most ranks see hooks in different orders.
  const double share = static_cast<double>(legal_plain) / static_cast<double>(counts[plain]);
  EXPECT_GE(share, 0.80);
  EXPECT_LE(share, 0.95);
  EXPECT_GE(counts[index_of("rank-asymmetric graph")], kCases / 2);
}

TEST(Generate, ProgramsAreLegalUnlessTheSubjectHasErrors) {
  GenerateOptions options;
  options.capabilities = Capabilities::all().without_errors();
  for (std::uint64_t index = 0; index < 5000; ++index) {
    const Case value = generate(3, index, options);
    const auto expected = reference::run(value.program, reference::Contract::lockstep());
    for (const auto& step : expected.steps) ASSERT_FALSE(step.any_error) << "case " << index;
  }
}

TEST(Generate, OfASubjectWithoutErrorsOnlyAnAbsentRankMakesProgramsFail) {
  GenerateOptions options;
  options.capabilities = Capabilities::all().without(Capability::kErrors);
  std::size_t absent = 0;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const Case value = generate(3, index, options);
    absent += has_absent_rank(value.program) ? 1 : 0;
    EXPECT_FALSE(needed(value).has(Capability::kErrors)) << "case " << index;
    const auto expected = reference::run(value.program, reference::Contract::lockstep());
    for (const auto& step : expected.steps)
      for (const auto& rank : step.ranks)
        ASSERT_NE(rank.outcome, reference::Outcome::kOwnError) << "case " << index;
  }
  EXPECT_GT(absent, 100u);
}

TEST(Generate, IsAFunctionOfSeedIndexAndOptions) {
  for (std::uint64_t index = 0; index < 500; ++index)
    ASSERT_EQ(to_json(generate(4, index)), to_json(generate(4, index)));
  EXPECT_FALSE(equal(generate(4, 0), generate(4, 1)));
  EXPECT_FALSE(equal(generate(4, 0), generate(5, 0)));
}

// The numbers of the generator are part of what a seed means: a change of this hash makes every
// seed that somebody wrote down another case. Change it knowingly.
TEST(Generate, MakesTheSameCasesOnEveryMachine) {
  std::uint64_t hash = 0;
  for (std::uint64_t index = 0; index < 200; ++index)
    hash = hash * 31 + hash_of(generate(6, index));
  EXPECT_EQ(hash, 17848680576410236411u);
}

TEST(Generate, InTheSimulatorSomeCasesHaveAFaultInAReset) {
  std::uint64_t in_reset = 0;
  std::set<faults::Kind> kinds;
  GenerateOptions gloo;
  gloo.lane = GenerateOptions::Lane::kGloo;
  for (std::uint64_t index = 0; index < kCases; ++index) {
    for (const faults::Fault& fault : generate(19, index).faults.faults) {
      if (!fault.in_reset) continue;
      ++in_reset;
      kinds.insert(fault.kind);
      // A fault of an earlier step makes the ranks reset. In the construction it is connecting that
      // may fail, and the store beside it, or memory is refused.
      EXPECT_TRUE(fault.step > 0 || fault.kind == faults::Kind::kConnectError ||
                  fault.kind == faults::Kind::kMemoryRefused ||
                  fault.kind == faults::Kind::kUserAbort || faults::is_store_call(fault.kind));
    }
    for (const faults::Fault& fault : generate(19, index, gloo).faults.faults)
      EXPECT_FALSE(fault.in_reset);
  }
  EXPECT_GE(in_reset, kCases / 200);
  for (int i = 0; i < faults::kKinds; ++i) {
    const auto kind = static_cast<faults::Kind>(i);
    EXPECT_EQ(kinds.contains(kind),
              !faults::is_of_hosts_lane(kind) && faults::has_site_in_reset(kind))
        << faults::name_of(kind);
  }
}

// F1: also where no rank resets.
TEST(Generate, InTheSimulatorMemoryIsRefusedInSteps) {
  std::uint64_t in_steps = 0;
  std::set<std::uint32_t> sites;
  for (std::uint64_t index = 0; index < kCases; ++index) {
    for (const faults::Fault& fault : generate(19, index).faults.faults) {
      if (fault.kind != faults::Kind::kMemoryRefused || fault.in_reset) continue;
      ++in_steps;
      sites.insert(fault.site);
    }
  }
  EXPECT_GE(in_steps, kCases / 50);
  EXPECT_GE(sites.size(), 40u);
}

// F5: in steps, in constructions and in resets; by each call, with each code.
TEST(Generate, InTheSimulatorUsersGiveUpEverywhere) {
  std::uint64_t in_steps = 0;
  std::set<std::uint32_t> sites;
  std::set<std::uint32_t> ways;
  std::set<bool> in_reset;
  GenerateOptions listed;
  EXPECT_TRUE(parse_faults("user_abort", listed).ok());
  for (std::uint64_t index = 0; index < kCases; ++index) {
    for (const faults::Fault& fault : generate(19, index).faults.faults)
      in_steps += fault.kind == faults::Kind::kUserAbort && !fault.in_reset ? 1 : 0;
    for (const faults::Fault& fault : generate(19, index, listed).faults.faults) {
      EXPECT_EQ(fault.kind, faults::Kind::kUserAbort);
      sites.insert(fault.site);
      ways.insert(fault.at);
      if (fault.in_reset) in_reset.insert(fault.step > 0);
    }
  }
  EXPECT_GE(in_steps, kCases / 50);
  EXPECT_GE(sites.size(), 40u);
  EXPECT_EQ(ways.size(), 12u);
  EXPECT_EQ(in_reset.size(), 2u);  // also in constructions
}

TEST(Generate, OverNcclOneProgramInFiveDelaysCollectivesInTurn) {
  const auto is_in_turn = [](const Case& value) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::set<std::uint32_t>> sites;
    for (const faults::Fault& fault : value.faults.faults)
      if (fault.kind == faults::Kind::kOperationDelay && !fault.in_reset)
        sites[{fault.rank, fault.step}].insert(fault.site);
    return std::any_of(sites.begin(), sites.end(), [](const auto& of_rank) {
      const std::set<std::uint32_t>& all = of_rank.second;
      return std::any_of(all.begin(), all.end(),
                         [&](std::uint32_t site) { return all.contains(site + 1); });
    });
  };
  std::uint64_t in_turn = 0;
  std::uint64_t able = 0;
  GenerateOptions options;
  options.transport = reference::Transport::kNccl;
  for (std::uint64_t index = 0; index < kCases; ++index) {
    const Case value = generate(19, index, options);
    able += value.program.world > 1 ? 1 : 0;
    in_turn += is_in_turn(value) ? 1 : 0;
  }
  EXPECT_GE(in_turn, able * 15 / 100);
  EXPECT_LE(in_turn, able * 30 / 100);
}

// No policy starves: one that finds little of what is planted may find what is not.
TEST(Generate, EveryPolicyIsDrawnOnEveryTransportUnlessOneIsNamed) {
  GenerateOptions options;
  for (const reference::Transport transport :
       {reference::Transport::kHost, reference::Transport::kNccl}) {
    constexpr int kDrawn = 2000;
    options.transport = transport;
    options.policy.reset();
    std::map<std::string, int> drawn;
    for (std::uint64_t index = 0; index < kDrawn; ++index)
      ++drawn[name_of(generate(18, index, options).schedule.policy)];
    for (const std::string& policy : policy_names())
      EXPECT_GE(drawn[policy], kDrawn / 100) << policy << " over " << static_cast<int>(transport);
    // Most cases over NCCL have partial order sampling, and few of the others.
    if (transport == reference::Transport::kNccl)
      EXPECT_GT(drawn["pos"], kDrawn * 65 / 100);
    else
      EXPECT_LT(drawn["pos"], kDrawn * 35 / 100);
    options.policy = Schedule::Policy::kRoundRobin;
    for (std::uint64_t index = 0; index < 200; ++index)
      ASSERT_EQ(generate(18, index, options).schedule.policy, Schedule::Policy::kRoundRobin);
  }
}

// The row of an option says how often it is drawn, and what a subject needs for it.
TEST(Generate, OptionsAreDrawnAsOftenAsTheirRowsSay) {
  std::map<std::string, int> drawn;
  for (std::uint64_t index = 0; index < kCases; ++index) {
    const auto random_for = [&](std::string_view name) { return Random(5, index, name); };
    reference::Replicated options;
    draw_rows(random_for, Capabilities::all(), options);
    reference::Replicated without;
    draw_rows(random_for, {}, without);
    fields::for_each<reference::Replicated>([&](const auto& field) {
      drawn[field.name] += fields::is_set(field, options) ? 1 : 0;
      ASSERT_FALSE(field.row.needs && fields::is_set(field, without)) << field.name;
    });
  }
  int rows = 0;
  fields::for_each<reference::Replicated>([&](const auto& field) {
    const fields::Row& row = field.row;
    const bool is_by_hand = row.stream != nullptr && row.stream == std::string_view();
    const double share = is_by_hand ? 0 : row.percent / 100.0;
    rows += share > 0 ? 1 : 0;
    EXPECT_NEAR(drawn[field.name] / static_cast<double>(kCases), share, 0.02) << field.name;
  });
  EXPECT_GE(rows, 2);
}

// The share of cases in which a row sets the field: an enum's weights count, too.
template <typename T>
double share_of(const fields::Row& row) {
  double share = row.percent / 100.0;
  if constexpr (std::is_enum_v<T>) {
    const auto weights = fields::weights<T>();
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    share *= 1 - weights[0] / all;
  }
  return share;
}

// The row of a field of the environment says how often it is drawn.
TEST(Generate, TheEnvironmentIsDrawnAsOftenAsItsRowsSay) {
  const Environment simplest;
  std::map<std::string, int> drawn;
  for (std::uint64_t index = 0; index < kCases; ++index) {
    Environment environment;
    draw_rows([&](std::string_view name) { return Random(5, index, name); }, environment);
    fields::for_each<Environment>([&](const auto& field) {
      drawn[field.name] += fields::is_set(field, environment) ? 1 : 0;
    });
  }
  fields::for_each<Environment>([&](const auto& field) {
    using T = std::remove_cvref_t<decltype(field.get(simplest))>;
    EXPECT_NEAR(drawn[field.name] / static_cast<double>(kCases), share_of<T>(field.row), 0.02)
        << field.name;
  });
}

// What means something over NCCL alone is rare among all cases, and no field is rare there.
TEST(Generate, EveryFieldOfTheEnvironmentIsSetInOneCaseOfAHundredOnSomeTransport) {
  std::map<std::string, int> most;
  for (const reference::Transport transport :
       {reference::Transport::kHost, reference::Transport::kNccl}) {
    GenerateOptions options;
    options.transport = transport;
    std::map<std::string, int> set;
    for (std::uint64_t index = 0; index < 2000; ++index) {
      const Case value = generate(23, index, options);
      fields::for_each<Environment>([&](const auto& field) {
        set[field.name] += fields::is_set(field, value.environment) ? 1 : 0;
      });
    }
    for (const auto& [name, count] : set) most[name] = std::max(most[name], count);
  }
  EXPECT_EQ(most.size(), fields::size_of_table<Environment>);
  for (const auto& [name, count] : most) EXPECT_GE(count, 20) << name;
}

// Chance draws every field by itself, so that no pair of choices is out of reach.
TEST(Generate, EveryPairOfChoicesOfTheEnvironmentOccurs) {
  std::set<std::pair<std::string, std::string>> pairs;
  std::set<std::string> names;
  for (std::uint64_t index = 0; index < 40'000; ++index) {
    Environment environment;
    draw_rows([&](std::string_view name) { return Random(29, index, name); }, environment);
    std::vector<std::string> set;
    fields::for_each<Environment>([&](const auto& field) {
      if (fields::is_set(field, environment)) set.emplace_back(field.name);
    });
    for (const std::string& one : set)
      for (const std::string& other : set) pairs.emplace(one, other);
    names.insert(set.begin(), set.end());
  }
  EXPECT_EQ(pairs.size(), names.size() * names.size());
}

TEST(Random, HasNumbersOfItsOwnForEveryName) {
  EXPECT_NE(Random(1, 2, "hook_result").bits(), Random(1, 2, "hook_results").bits());
  EXPECT_NE(Random(1, 2, "hook_result").bits(), Random(1, 2, "hook_resign").bits());
  EXPECT_NE(Random(1, 2, "verify").bits(), Random(1, 2, "limits").bits());
}

TEST(Generate, CasesAreNormalizedAlready) {
  GenerateOptions large;
  large.max_parameters = reference::kMaxParameters;
  large.max_steps = reference::kMaxSteps;
  GenerateOptions gloo;
  gloo.lane = GenerateOptions::Lane::kGloo;
  for (const GenerateOptions& options : {GenerateOptions(), large, gloo})
    for (std::uint64_t index = 0; index < 5000; ++index) {
      const Case value = generate(7, index, options);
      Case normal = value;
      normalize(normal);
      ASSERT_TRUE(equal(value, normal)) << "case " << index;
    }
}

TEST(Generate, StaysWithinTheLimitsOfItsOptions) {
  GenerateOptions options;
  options.max_world = 2;
  options.max_parameters = 3;
  options.max_steps = 2;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const Program program = generate(8, index, options).program;
    ASSERT_LE(program.world, 2u);
    ASSERT_LE(program.parameters.size(), 3u);
    ASSERT_LE(program.steps.size(), 2u);
  }
}

TEST(Generate, RealLanesHaveAtMostEightRanks) {
  GenerateOptions options;
  std::uint32_t most = 0;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    options.lane = GenerateOptions::Lane::kGloo;
    ASSERT_LE(generate(8, index, options).program.world, 8u);
    options.lane = GenerateOptions::Lane::kSim;
    most = std::max(most, generate(8, index, options).program.world);
  }
  EXPECT_EQ(most, 16u);
}

// Every number of parameters from 1 to 64 is drawn, and every number of buckets from 1 to 50; now
// and then there are more of both than a byte can count.
TEST(Generate, EveryNumberOfParametersOccurs) {
  std::set<std::size_t> parameters;
  std::set<std::uint32_t> buckets;
  for (std::uint64_t index = 0; index < 20'000; ++index) {
    const Program program = generate(16, index).program;
    parameters.insert(program.parameters.size());
    buckets.insert(bucket_count(program));
  }
  for (std::size_t count = 1; count <= kMostDrawn; ++count)
    EXPECT_EQ(parameters.count(count), 1u) << count;
  EXPECT_GT(*parameters.rbegin(), 257u);
  EXPECT_GT(*buckets.rbegin(), 257u);
  for (std::uint32_t count = 1; count <= 50; ++count) EXPECT_EQ(buckets.count(count), 1u) << count;
}

// With the largest values every mean that the contract asks for is finite.
TEST(Generate, LargestValuesHaveFiniteMeans) {
  int found = 0;
  for (std::uint64_t index = 0; index < 5000; ++index) {
    const Program program = generate(17, index).program;
    if (program.values != reference::Values::kLargest) continue;
    ++found;
    const auto expected = reference::run(program, reference::Contract::lockstep());
    for (const auto& step : expected.steps)
      for (const auto& rank : step.ranks)
        for (std::size_t p = 0; p < rank.gradients.size(); ++p) {
          const auto& gradient = rank.gradients[p];
          if (!gradient.known || !gradient.defined) continue;
          const reference::Parameter& parameter = program.parameters[p];
          for (std::uint64_t e = 0; e < reference::value_count(parameter); ++e)
            ASSERT_TRUE(std::isfinite(
                reference::to_double(parameter.dtype, expected.bits[gradient.offset + e])))
                << "case " << index;
        }
  }
  EXPECT_GT(found, 50);
}

// Returns whether the plan is that one rank begins six collectives late, each by the same time.
bool is_tight(const Case& value) {
  const auto& plan = value.faults.faults;
  return value.timeout_ms > 0 && plan.size() == 6 &&
         std::all_of(plan.begin(), plan.end(), [&](const faults::Fault& fault) {
           return fault.kind == faults::Kind::kOperationDelay && fault.rank == plan[0].rank &&
                  fault.duration_us == plan[0].duration_us;
         });
}

TEST(Generate, TimeoutsComeWithSilenceAndLeaveRoomForDelays) {
  int tight = 0;
  for (std::uint64_t index = 0; index < 5000; ++index) {
    const Case value = generate(9, index);
    bool silent = false;
    std::uint64_t delays_us = 0;
    for (const faults::Fault& fault : value.faults.faults) {
      silent = silent || can_silence(fault.kind);
      delays_us += fault.duration_us;
    }
    if (is_tight(value)) {
      ++tight;
      const std::uint32_t delay_us = value.faults.faults[0].duration_us;
      ASSERT_GE(delay_us, 1'200'000u) << "case " << index;
      ASSERT_GT(value.timeout_ms * 1000u, delay_us) << "case " << index;
      ASSERT_LE(value.timeout_ms, delay_us / 1000 + 300) << "case " << index;
      continue;
    }
    ASSERT_EQ(value.timeout_ms > 0, silent) << "case " << index;
    if (!silent) continue;
    ASSERT_GE(value.timeout_ms, 1000u);
    ASSERT_LE(value.timeout_ms, 5000u);
    ASSERT_GT(value.timeout_ms * 1000u, 2 * delays_us);
  }
  EXPECT_GE(tight, 5);
}

TEST(Generate, TheGlooLaneHasOnlyFaultsOfProcesses) {
  GenerateOptions options;
  options.lane = GenerateOptions::Lane::kGloo;
  std::set<faults::Kind> seen;
  std::uint64_t with_timeout = 0;
  for (std::uint64_t index = 0; index < 5000; ++index) {
    const Case value = generate(10, index, options);
    with_timeout += value.timeout_ms > 0 ? 1 : 0;
    ASSERT_EQ(value.schedule.policy, Schedule::Policy::kDefault);
    for (const faults::Fault& fault : value.faults.faults) {
      seen.insert(fault.kind);
      ASSERT_LE(fault.duration_us, 20'000u);
    }
  }
  using faults::Kind;
  EXPECT_EQ(seen, (std::set<Kind>{Kind::kOperationDelay, Kind::kOperationStall, Kind::kRankExit,
                                  Kind::kRankPause, Kind::kNodeThrows, Kind::kSlowThread,
                                  Kind::kHookFails, Kind::kPayloadFlip, Kind::kPayloadTruncate,
                                  Kind::kPayloadSwap, Kind::kPayloadStale, Kind::kPayloadShift,
                                  Kind::kUserAbort}));
  EXPECT_LE(with_timeout, 5000u / 20);
}

TEST(Generate, OnlyRanksOnMachinesOfTheirOwnHaveFaultsOfTheNetwork) {
  GenerateOptions options;
  options.lane = GenerateOptions::Lane::kGloo;
  options.has_network = true;
  ASSERT_TRUE(
      parse_faults("net_partition,net_loss,net_reset,net_reject,net_half_open,net_bandwidth,"
                   "net_mtu,net_delay,net_cut",
                   options)
          .ok());
  std::map<faults::Kind, int> seen;
  int pairs = 0;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const Case value = generate(19, index, options);
    for (const faults::Fault& fault : value.faults.faults) {
      ASSERT_TRUE(faults::is_network(fault.kind));
      ++seen[fault.kind];
      pairs += fault.peer != fault.rank ? 1 : 0;
    }
  }
  EXPECT_EQ(seen.size(), 9U);
  EXPECT_GT(pairs, 500);
}

TEST(Generate, FaultsOfNodesAreDrawnWhereTheyAreListed) {
  GenerateOptions options;
  options.lane = GenerateOptions::Lane::kGloo;
  options.has_network = true;
  for (std::uint64_t index = 0; index < 2000; ++index)
    for (const faults::Fault& fault : generate(19, index, options).faults.faults)
      ASSERT_FALSE(faults::is_of_node(fault.kind));
  ASSERT_TRUE(parse_faults("node_stop,node_memory,node_descriptors,node_clock,store_full,"
                           "store_dead,store_slow,rank_replaced,rank_left_out",
                           options)
                  .ok());
  std::map<faults::Kind, int> seen;
  int in_construction = 0;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    int leave = 0;
    const Case value = generate(19, index, options);
    for (const faults::Fault& fault : value.faults.faults) {
      ASSERT_TRUE(faults::is_of_node(fault.kind));
      ++seen[fault.kind];
      in_construction += fault.in_reset && fault.step == 0 ? 1 : 0;
      using enum faults::Kind;
      leave +=
          fault.kind == kRankReplaced || fault.kind == kRankLeftOut || fault.kind == kNodeMemory
              ? 1
              : 0;
      if (fault.kind == kNodeStop) {
        ASSERT_LT(value.timeout_ms, fault.duration_us / 1000);
      }
    }
    ASSERT_LE(leave, 1);  // somebody survives
  }
  EXPECT_EQ(seen.size(), 9U);
  EXPECT_GT(in_construction, 300);
}

TEST(Generate, AListOfFaultsIsObeyed) {
  GenerateOptions options;
  ASSERT_TRUE(parse_faults("rank_exit,slow_thread", options).ok());
  std::uint64_t with = 0;
  for (std::uint64_t index = 0; index < 1000; ++index) {
    const Case value = generate(11, index, options);
    with += value.faults.faults.empty() ? 0 : 1;
    for (const faults::Fault& fault : value.faults.faults)
      ASSERT_TRUE(fault.kind == faults::Kind::kRankExit || fault.kind == faults::Kind::kSlowThread);
  }
  EXPECT_GE(with, 950u);
  ASSERT_TRUE(parse_faults("none", options).ok());
  for (std::uint64_t index = 0; index < 1000; ++index)
    ASSERT_TRUE(generate(11, index, options).faults.faults.empty());
}

TEST(ParseFaults, RefusesWhatItDoesNotKnow) {
  GenerateOptions options;
  const auto message = [&](const char* text) {
    const Status status = parse_faults(text, options);
    return status.ok() ? "accepted" : status.failure().detail;
  };
  EXPECT_EQ(message("rank_exits"), "unknown fault 'rank_exits': did you mean \"rank_exit\"?");
  EXPECT_EQ(
      message("rank_exit,"),
      "unknown fault '': known are: swarm, none, message_delay, message_stall, operation_delay, "
      "operation_stall, operation_error, call_error, link_reset, rank_exit, rank_pause, "
      "node_throws, slow_thread, hook_fails, payload_flip, payload_truncate, payload_swap, "
      "payload_stale, payload_shift, connect_error, store_delay, store_error, store_torn, "
      "net_partition, net_loss, net_reset, net_reject, "
      "net_half_open, "
      "net_bandwidth, net_mtu, net_delay, net_cut, node_stop, node_memory, node_descriptors, "
      "node_clock, store_full, store_dead, store_slow, rank_replaced, rank_left_out, "
      "memory_refused, user_abort");
  EXPECT_EQ(message("swarm"), "accepted");
}

// F3: where nothing is verified nothing that travels may be changed, as no rank could notice.
TEST(Generate, F3ChangesOnlyWhatIsVerified) {
  const auto changes = [](const Case& value) {
    return std::any_of(value.faults.faults.begin(), value.faults.faults.end(),
                       [](const auto& fault) { return faults::is_payload(fault.kind); });
  };
  int verified = 0;
  int changed = 0;
  for (std::uint64_t index = 0; index < 5000; ++index) {
    const Case value = generate(14, index);
    const reference::Replicated& options = value.program.options;
    const bool is_rank_ordered = options.order == reference::Order::kRankOrder;
    ASSERT_TRUE(!options.verify || is_rank_ordered) << "case " << index;
    const bool can_change = options.verify && value.program.world > 1;
    ASSERT_TRUE(can_change || !changes(value)) << "case " << index;
    verified += options.verify ? 1 : 0;
    changed += changes(value) ? 1 : 0;
  }
  EXPECT_GT(verified, 800);
  EXPECT_GT(2 * changed, verified);
  GenerateOptions unable;
  unable.capabilities = Capabilities::all().without(Capability::kVerify);
  GenerateOptions named;
  ASSERT_TRUE(parse_faults("payload_swap", named).ok());
  int swapped = 0;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    ASSERT_FALSE(generate(14, index, unable).program.options.verify);
    const Case value = generate(14, index, named);
    for (const faults::Fault& fault : value.faults.faults)
      ASSERT_EQ(fault.kind, faults::Kind::kPayloadSwap);
    swapped += changes(value) ? 1 : 0;
  }
  EXPECT_GT(swapped, 100);
}

TEST(BucketCount, FollowsTheAssignment) {
  Program program;
  program.parameters.resize(4);  // of 4 bytes each
  EXPECT_EQ(bucket_count(program), 1u);
  program.options.first_bucket_bytes = 1;
  program.options.bucket_bytes = 8;
  EXPECT_EQ(bucket_count(program), 3u);  // {0}, {1, 2}, {3}
  program.parameters[3].device = 1;
  EXPECT_EQ(bucket_count(program), 3u);
  program.parameters[3].frozen = true;
  EXPECT_EQ(bucket_count(program), 2u);
  program.parameters[2].dtype = reference::DType::kFloat64;
  EXPECT_EQ(bucket_count(program), 3u);
  const auto buckets = reference::run(program, reference::Contract::lockstep()).buckets;
  EXPECT_EQ(bucket_count(program), buckets.size());
}

TEST(BucketCount, AgreesWithTheModel) {
  for (std::uint64_t index = 0; index < 2000; ++index) {
    Program program = generate(12, index).program;
    program.steps.clear();
    const auto expected = reference::run(program, reference::Contract::lockstep());
    std::size_t buckets = 0;
    for (std::uint32_t r = 0; r < reference::reducer_count(program); ++r)
      buckets += reference::share_of(program, expected, 0, r).buckets.size();
    // Each reducer draws a pinned order of its own.
    if (program.options.pinned != 0 && reference::reducer_count(program) > 1) continue;
    ASSERT_EQ(bucket_count(program), buckets) << "case " << index;
  }
}

TEST(Random, AreFair) {
  Random random(1, 2);
  std::map<std::uint32_t, int> counts;
  for (int i = 0; i < 60'000; ++i) ++counts[random.below(6)];
  EXPECT_EQ(counts.size(), 6u);
  for (const auto& [face, count] : counts) EXPECT_NEAR(count, 10'000, 500) << face;
  EXPECT_EQ(random.below(0), 0u);
  EXPECT_EQ(random.below(1), 0u);
}

// What a case costs, for the record: printed and not judged, as it depends on the machine.
TEST(Generate, CostIsReported) {
  constexpr int kCount = 20'000;
  std::uint64_t steps = 0;
  const std::clock_t start = std::clock();
  for (std::uint64_t index = 0; index < kCount; ++index)
    steps += generate(13, index).program.steps.size();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("%.1f microseconds of processor time a case\n", seconds * 1e6 / kCount);
  EXPECT_GT(steps, 0u);
}

}  // namespace
}  // namespace lockstep::properties
