// The gloo lane: real Gloo over TCP on the loopback interface, or with shared memory, as the
// environment says. Ranks are threads of this process.
// In cases with a fault that ends or stops a process, and where the environment says so, they are
// processes (process_ranks.h). Compiled once per build of the reducer.
#include <algorithm>
#include <future>
#include <map>
#include <system_error>
#include <thread>

#include "properties/lane/gloo_environment.h"
#include "properties/lane/lane.h"
#include "properties/lane/needs.h"
#include "properties/lane/process_ranks.h"
#include "properties/observe/coordinator.h"
#include "properties/observe/training.h"
#include "properties/process/processor_time.h"
#include "properties/subject/hosted_subject.h"
#include "properties/subject/subject_factory.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using properties::Case;
using properties::Observation;
using properties::Subject;

bool needs_processes(const Case& c) {
  const auto& faults = c.faults.faults;
  return c.environment.processes ||
         std::any_of(faults.begin(), faults.end(), [](const faults::Fault& fault) {
           return properties::needs_process(fault.kind);
         });
}

class GlooLane final : public properties::Lane {
 public:
  explicit GlooLane(const Subject& subject)
      : make_subject_(make_subject_factory(subject)),
        may_have_processes_(!subject.is_in_this_program),
        processes_(subject) {}

  void run(const Case& c, const reference::Expectation& expectation,
           Observation& observation) override {
    if (may_have_processes_ && needs_processes(c))
      processes_.run(c, observation);
    else
      run_threads(c, expectation, observation);
  }

 private:
  using Contexts = std::vector<std::shared_ptr<GlooContext>>;  // by rank

  void run_threads(const Case& c, const reference::Expectation& expectation,
                   Observation& observation) {
    const std::uint32_t world = c.program.world;
    Contexts& contexts = contexts_[{world, c.environment.shares_memory}];
    contexts.resize(world);
    // Either all ranks reuse their context, or all connect anew.
    if (std::find(contexts.begin(), contexts.end(), nullptr) != contexts.end())
      contexts.assign(world, nullptr);
    Coordinator coordinator(world);
    const auto store = std::make_shared<HashStore>();
    observation.ranks.resize(world);
    std::vector<std::vector<std::unique_ptr<HostDevice>>> devices(world);
    std::vector<std::unique_ptr<GlooEnvironment>> environments;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      GlooEnvironment::Setup setup;
      setup.c = &c;
      setup.rank = rank;
      setup.store = store;
      setup.detailed = observation.detailed;
      setup.meet = [&coordinator, rank](bool finished, std::uint32_t next_step) {
        return coordinator.meet(rank, finished, next_step);
      };
      environments.push_back(std::make_unique<GlooEnvironment>(std::move(setup), contexts[rank]));
    }
    properties::ExpectedErrors errors(c.program, expectation);
    properties::ProcessorClock clock("/proc/self/task");
    const bool ran = run_each(world, observation, [&](std::uint32_t rank) {
      train(c.program, errors, make_subject_, *environments[rank], devices[rank],
            observation.ranks[rank]);
      coordinator.leave(rank);
      clock.sample_this_thread();
    });
    if (!ran) return;
    clock.sample();
    observation.waited_s = clock.longest_wait_s();
    observation.recoveries = coordinator.recoveries();
    finish(environments, devices, contexts, observation);
  }

  // Runs the body on a thread for each rank. If one thread cannot be started, no rank begins.
  template <class Body>
  static bool run_each(std::uint32_t world, Observation& observation, Body body) {
    std::promise<bool> all_are_there;
    std::shared_future<bool> may_begin = all_are_there.get_future().share();
    std::vector<std::thread> threads;
    try {
      for (std::uint32_t rank = 0; rank < world; ++rank)
        threads.emplace_back([&body, may_begin, rank] {
          if (may_begin.get()) body(rank);
        });
    } catch (const std::system_error& error) {
      observation.end = Observation::End::kNotRun;
      observation.wait_graph =
          properties::refused_by_system("no thread can be started for a rank", error.code().value())
              .failure()
              .detail;
    }
    const bool runs = threads.size() == world;
    all_are_there.set_value(runs);
    for (std::thread& thread : threads) thread.join();
    return runs;
  }

  static void finish(const std::vector<std::unique_ptr<GlooEnvironment>>& environments,
                     std::vector<std::vector<std::unique_ptr<HostDevice>>>& devices,
                     Contexts& contexts, Observation& observation) {
    const bool reusable = observation.recoveries.empty() &&
                          std::all_of(observation.ranks.begin(), observation.ranks.end(),
                                      [](const auto& r) { return r.finished; });
    for (std::size_t rank = 0; rank < environments.size(); ++rank) {
      contexts[rank] = reusable ? environments[rank]->reusable_context() : nullptr;
      observation.fired.add_counts(environments[rank]->fired());
      for (auto& device : devices[rank]) {
        if (device->allocated_bytes() == 0) continue;
        observation.leaked_bytes += device->allocated_bytes();
        (void)device.release();  // leaked storages still point to it
      }
    }
  }

  SubjectFactory make_subject_;
  const bool may_have_processes_;
  properties::ProcessRanks processes_;
  std::map<std::pair<std::uint32_t, bool>, Contexts> contexts_;  // by world size and shared memory
};

}  // namespace

std::unique_ptr<properties::Lane> make_gloo_lane(const Subject& subject) {
  return std::make_unique<GlooLane>(subject);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
