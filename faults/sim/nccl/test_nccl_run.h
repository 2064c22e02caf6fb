// A helper for tests of SimNccl: it runs some processes, each with a device, as the ranks that
// NcclUnderTest represents.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "faults/injector.h"
#include "faults/sim/device/sim_device.h"
#include "faults/sim/device/test_device_run.h"
#include "faults/sim/nccl/sim_nccl.h"
#include "faults/sim/network.h"
#include "reducer/comm/nccl/test_nccl_conformance.h"

namespace lockstep::simulated {

class SimRank;

struct NcclRun {
  explicit NcclRun(int of) : ranks(of) {}

  // Runs body(rank) on one fiber per rank.
  simulation::End run(const std::function<void(SimRank&)>& body);
  std::string findings_text() const {
    std::string all;
    for (const std::string& one : findings) all += one + "\n";
    return all;
  }

  int ranks;
  simulation::Schedule schedule{simulation::Policy::kRandomWalk, 1, {}};
  faults::FaultPlan plan;
  Latency latency;
  SimNcclOptions options;
  DeviceOptions device;
  std::function<void(int rank, DeviceOptions&)> gpus;  // changes the device options of single ranks
  std::function<void(NcclApi&)> before;                // changes the table before the run
  // The results of the run.
  std::vector<std::string> findings;  // from all devices
  std::vector<std::string> misuses;
  std::size_t left_open = 0;
  std::string wait_graph;
  // The objects of the run.
  simulation::Scheduler scheduler;
  faults::Injector injector;
  SimNetwork network;
  NcclApi api;
  std::shared_ptr<Store> store;
  std::vector<NcclUniqueId> ids;
  int came = 0;
};

class SimRank final : public NcclUnderTest {
 public:
  SimRank(NcclRun& run, int rank, SimDevice& device) : run_(run), rank_(rank), device_(device) {}
  const NcclApi& api() override { return run_.api; }
  int rank() override { return rank_; }
  int ranks() override { return run_.ranks; }
  SimDevice& device() override { return device_; }
  NcclUniqueId shared_id() override {
    const std::size_t which = next_id_++;
    if (rank_ == 0) {
      run_.ids.emplace_back();
      EXPECT_EQ(api().get_unique_id(&run_.ids.back()), NcclResult::kSuccess);
    }
    while (run_.ids.size() <= which || run_.ids[which].internal[0] == 0) pause();
    return run_.ids[which];
  }
  void meet() override {
    const int round = ++meetings_;
    ++run_.came;
    while (run_.came < round * run_.ranks) pause();
  }
  // Like meet(), but without `missing` of the ranks. It must be the last meeting of the run.
  void meet_without(int missing) {
    const int before = meetings_ * run_.ranks;
    ++run_.came;
    while (run_.came < before + run_.ranks - missing) pause();
  }
  std::shared_ptr<Store> store() override { return run_.store; }
  // This is short, because ranks that are done look for the others every microsecond.
  platform::Duration long_time() override { return std::chrono::milliseconds(200); }
  platform::Duration short_time() override { return std::chrono::milliseconds(5); }
  void pause() override {
    run_.scheduler.yield();
    run_.scheduler.sleep_until(run_.scheduler.now() + std::chrono::microseconds(1));
  }

 private:
  NcclRun& run_;
  int rank_;
  SimDevice& device_;
  std::size_t next_id_ = 0;
  int meetings_ = 0;
};

inline simulation::End NcclRun::run(const std::function<void(SimRank&)>& body) {
  findings.clear();
  ids.clear();
  came = 0;
  ids.reserve(64);
  scheduler.reset(schedule);
  store = std::make_shared<HashStore>();
  injector.reset(plan, static_cast<std::uint32_t>(ranks), 1);
  network.reset(scheduler, injector, latency, schedule.seed);
  SimNccl nccl(network, options);
  api = nccl.api();
  if (before) before(api);
  for (int rank = 0; rank < ranks; ++rank) {
    injector.begin_step(static_cast<std::uint32_t>(rank), 0);
    scheduler.spawn(
        "rank " + std::to_string(rank), static_cast<std::uint32_t>(rank), [this, &body, rank] {
          DeviceOptions its_own = device;
          if (gpus) gpus(rank, its_own);
          SimDevice on(its_own);
          SimRank subject(*this, rank, on);
          body(subject);
          for (const Finding& finding : on.findings())
            findings.push_back("rank " + std::to_string(rank) + ": " + finding.to_string());
        });
  }
  const simulation::Outcome& outcome = scheduler.run();
  wait_graph = outcome.wait_graph;
  misuses = nccl.misuses();
  left_open = nccl.open_communicators();
  return outcome.end;
}

using RankBody = std::function<void(SimRank&)>;

inline const std::set<simulation::End> kAllFinish{simulation::End::kFinished};

// Sixteen ones.
inline Tensor ones(SimRank& on) { return on.made(std::vector<float>(16, 1)); }

// Begins to sum the data in place, on the stream of the rank.
inline NcclResult start(SimRank& on, NcclComm comm, const Tensor& data) {
  return on.api().all_reduce(data.data(), data.data(), static_cast<std::size_t>(data.elements()),
                             kNcclFloat, NcclRedOp::kSum, comm, on.native());
}

}  // namespace lockstep::simulated
