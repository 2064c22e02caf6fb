// Job: a scheduler, an injector and a network for tests of the simulated process group. run() gives
// every rank a fiber, a group and step 0. run_all_reduces() also records the result of each
// collective.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "faults/injector.h"
#include "faults/sim/network.h"
#include "faults/sim/process_group.h"
#include "faults/sim/scheduler/scheduler.h"

namespace lockstep::simulated {

struct Job {
  explicit Job(std::uint32_t ranks) : world(ranks) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) members.push_back(rank);
  }

  // Runs body(rank, group) on one fiber per rank, after the rank has joined the group.
  simulation::Outcome run(const std::function<void(std::uint32_t, SimProcessGroup&)>& body) {
    scheduler.reset(schedule);
    injector.reset(plan, world, 1);
    network.reset(scheduler, injector, latency, schedule.seed);
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      injector.begin_step(rank, 0);
      scheduler.spawn("rank " + std::to_string(rank), rank, [this, &body, rank] {
        const auto group = SimProcessGroup::join(network, 0, members, rank, options);
        body(rank, *group);
      });
    }
    return scheduler.run();
  }

  // Like run(). Every rank runs `how_many` all-reduces of `count` floats, one after another, until
  // one fails. statuses[rank] holds their statuses and data[rank] the last result.
  simulation::Outcome run_all_reduces(int how_many, std::uint64_t count = 24) {
    statuses.assign(world, {});
    data.assign(world, std::vector<float>(count));
    ended_at.assign(world, Duration(0));
    return run([&](std::uint32_t rank, SimProcessGroup& group) {
      for (int i = 0; i < how_many; ++i) {
        for (std::uint64_t e = 0; e < count; ++e)
          data[rank][e] = static_cast<float>(rank + 1) * static_cast<float>(e + 1);
        Work work;
        Collective collective;
        collective.count = count;
        collective.data = reinterpret_cast<std::byte*>(data[rank].data());
        collective.pass = 3;
        collective.bucket = i;
        Status status = group.start(collective, work);
        if (status.ok()) status = work.wait(platform::Deadline::never());
        statuses[rank].push_back(status);
        ended_at[rank] = scheduler.now();
        if (!status.ok()) return;
      }
    });
  }
  bool result_is_right(std::uint32_t rank) const {
    const float ranks = static_cast<float>(world * (world + 1)) / 2;
    for (std::size_t e = 0; e < data[rank].size(); ++e)
      if (data[rank][e] != ranks * static_cast<float>(e + 1)) return false;
    return true;
  }
  const Status& last(std::uint32_t rank) const { return statuses[rank].back(); }

  std::uint32_t world;
  std::vector<std::uint32_t> members;
  simulation::Schedule schedule{simulation::Policy::kRandomWalk, 1, {}};
  faults::FaultPlan plan;
  Latency latency;
  GroupOptions options;
  simulation::Scheduler scheduler;
  faults::Injector injector;
  SimNetwork network;
  std::vector<std::vector<Status>> statuses;
  std::vector<std::vector<float>> data;
  std::vector<Duration> ended_at;
};

}  // namespace lockstep::simulated
