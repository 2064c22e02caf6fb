// Measures the cost of the simulator in real time. The figures in faults/sim/README.md come from
// this program.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "faults/sim/process_group.h"
#include "faults/sim/scheduler/scheduler.h"

namespace lockstep::simulated {
namespace {

using simulation::Policy;
using simulation::Scheduler;

// Runs executions of 12 fibers (4 ranks x 3) with `points` scheduling points in total.
void executions(benchmark::State& state) {
  Scheduler scheduler;
  const auto policy = static_cast<Policy>(state.range(0));
  const std::int64_t points = state.range(1) / 12;
  std::uint64_t seed = 0;
  std::uint64_t switches = 0;
  std::uint64_t steps = 0;
  for (auto _ : state) {
    scheduler.reset({policy, seed++, {}});
    for (std::uint32_t fiber = 0; fiber < 12; ++fiber)
      scheduler.spawn("fiber", fiber / 3, [points] {
        Scheduler& running = *Scheduler::running();
        for (std::int64_t i = 0; i < points; ++i) running.point();
      });
    auto end = scheduler.run().end;
    benchmark::DoNotOptimize(end);
    switches += scheduler.switches();
    steps += scheduler.steps();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(steps));
  state.counters["switches/s"] =
      benchmark::Counter(static_cast<double>(switches), benchmark::Counter::kIsRate);
}

// Runs one all-reduce after another on every rank of a group, without faults. The time is per
// collective, for all ranks together.
void all_reduce(benchmark::State& state) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  const auto count = static_cast<std::uint64_t>(state.range(1));
  const auto policy = static_cast<Policy>(state.range(2));
  const simulation::Duration spread(state.range(3));
  constexpr int kPerRun = 200;
  Scheduler scheduler;
  SimNetwork network;
  faults::Injector injector({}, ranks, 1);
  std::vector<std::uint32_t> members;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) members.push_back(rank);
  std::vector<std::vector<float>> data(ranks, std::vector<float>(count, 1.0F));
  std::uint64_t seed = 0;
  std::uint64_t steps = 0;
  for (auto _ : state) {
    scheduler.reset({policy, seed, {}});
    network.reset(scheduler, injector, {simulation::Duration(0), spread}, seed++);
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      scheduler.spawn("main", rank, [&, rank] {
        const auto group = SimProcessGroup::join(network, 0, members, rank, {});
        Collective collective;
        collective.count = count;
        collective.data = reinterpret_cast<std::byte*>(data[rank].data());
        Work work;
        for (int i = 0; i < kPerRun; ++i) {
          group->start(collective, work).ignore();
          work.wait(platform::Deadline::never()).ignore();
        }
      });
    if (scheduler.run().end != simulation::End::kFinished) state.SkipWithError("deadlock");
    steps += scheduler.steps();
  }
  state.SetItemsProcessed(state.iterations() * kPerRun);
  state.counters["points"] =
      static_cast<double>(steps) / static_cast<double>(state.iterations() * kPerRun);
}

// Creates a group of 4 ranks, does nothing with it, and ends it.
void empty_group(benchmark::State& state) {
  Scheduler scheduler;
  SimNetwork network;
  faults::Injector injector({}, 4, 1);
  const std::vector<std::uint32_t> members{0, 1, 2, 3};
  for (auto _ : state) {
    scheduler.reset({});
    network.reset(scheduler, injector, {}, 0);
    for (std::uint32_t rank = 0; rank < 4; ++rank)
      scheduler.spawn("main", rank,
                      [&, rank] { SimProcessGroup::join(network, 0, members, rank, {}); });
    auto end = scheduler.run().end;
    benchmark::DoNotOptimize(end);
  }
}

BENCHMARK(executions)
    ->ArgNames({"policy", "points"})
    ->ArgsProduct({{0, 1, 2, 3}, {450, 5400}})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(all_reduce)
    ->ArgNames({"ranks", "count", "policy", "latency"})
    ->ArgsProduct({{2, 4}, {50}, {0, 1, 2, 3}, {0}})
    ->Args({4, 50, 1, 20'000})
    ->Args({4, 0, 1, 0})
    ->Args({4, 10'000, 1, 0})
    ->Args({8, 50, 1, 0})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(empty_group)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lockstep::simulated

BENCHMARK_MAIN();
