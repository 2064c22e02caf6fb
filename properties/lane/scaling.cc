#include "properties/lane/scaling.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "faults/sim/network.h"
#include "faults/sim/process_group.h"
#include "reducer/comm/store.h"
#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using scaling::kHopUs;
using scaling::kPhases;
using scaling::Phase;
using namespace simulated;  // NOLINT
using simulation::End;

constexpr std::size_t kParameters = 8;
constexpr std::int64_t kElements = 1024;
constexpr std::uint64_t kBucketBytes = 8192;  // two parameters
constexpr std::uint64_t kScalingSteps = 1'000'000'000;
constexpr std::uint32_t kExitStep = 1;  // of the fault plan; everything before it is step 0
constexpr std::chrono::nanoseconds kHop{static_cast<std::int64_t>(kHopUs * 1000)};

// Counts the calls of one rank.
class CountingStore final : public Store {
 public:
  CountingStore(std::shared_ptr<Store> inner, std::uint64_t& calls)
      : inner_(std::move(inner)), calls_(calls) {}
  Result<bool> set(std::string_view key, std::string_view value) override {
    ++calls_;
    return inner_->set(key, value);
  }
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override {
    ++calls_;
    return inner_->get(key, deadline);
  }
  Result<bool> contains(std::string_view key) override {
    ++calls_;
    return inner_->contains(key);
  }

 private:
  const std::shared_ptr<Store> inner_;
  std::uint64_t& calls_;
};

// What all ranks of one job share.
struct SimulatedJob {
  explicit SimulatedJob(std::uint32_t ranks_of_job)
      : ranks(ranks_of_job), injector(plan(), ranks, 2) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) members.push_back(rank);
    scheduler.reset({simulation::Policy::kDefault, 0, {}});
    network.reset(scheduler, injector, {kHop, Duration(0)}, 1);
  }
  faults::FaultPlan plan() const { return {{{faults::Kind::kRankExit, ranks - 1, kExitStep, 1}}}; }

  const std::uint32_t ranks;
  std::vector<std::uint32_t> members;
  simulation::Scheduler scheduler{{.step_limit = kScalingSteps}};
  faults::Injector injector;
  SimNetwork network;
  const std::shared_ptr<Store> store = std::make_shared<HashStore>();
};

// The figures of one rank at the end of each phase, counted from the beginning of the job.
struct Marks {
  struct Mark {
    Duration at{0};
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    std::uint64_t store = 0;
  };
  std::vector<Mark> ends;
  std::string problem;
};

class ScalingRank {
 public:
  ScalingRank(SimulatedJob& job, std::uint32_t rank, Marks& marks)
      : job_(job), rank_(rank), marks_(marks) {
    for (std::size_t i = 0; i < kParameters; ++i)
      parameters_.push_back(make_ref<Parameter>("p" + std::to_string(i), device_, DType::kFloat32,
                                                Shape::row_major({kElements}), true,
                                                engine_.next_sequence()));
  }

  // Returns after the reset, or when this rank has exited.
  void train() {
    job_.injector.begin_step(rank_, 0);
    Membership members = join(0, job_.members);
    ReducerOptions options;
    options.bucket_limits = {kBucketBytes};
    auto made = DataParallel::create(parameters_, engine_, options, std::move(members));
    if (!made) return fail(made.error());
    parallel_ = std::move(*made);
    mark();
    if (!expect(step())) return;
    mark();
    std::vector<Edge> outputs;  // its forward rebuilds the buckets
    if (!expect(forward(outputs))) return;
    mark();
    if (!expect(backward(outputs))) return;
    mark();
    if (!expect(train_unevenly())) return;
    mark();
    job_.injector.begin_step(rank_, kExitStep);
    const Status status = step();
    if (job_.injector.exited(rank_)) return;
    if (status.ok()) return fail(Status(Code::kIncomplete, "a rank has exited, and no error came"));
    mark();
    std::vector<std::uint32_t> survivors = job_.members;
    survivors.pop_back();
    if (!expect(parallel_->reset(join(1, survivors)))) return;
    mark();
  }

 private:
  Membership join(std::int64_t generation, const std::vector<std::uint32_t>& members) {
    meshes_.push_back(&job_.network.mesh(generation, members));
    return {
        SimProcessGroup::join(job_.network, generation, members, rank_, {}),
        std::make_shared<CountingStore>(
            std::make_shared<PrefixStore>(std::to_string(generation), job_.store), store_calls_)};
  }

  Status forward(std::vector<Edge>& outputs) {
    const auto module = [this](std::vector<Edge>& made) {
      for (const Ref<Parameter>& parameter : parameters_) made.push_back({parameter, 0});
      return Status();
    };
    return parallel_->forward(module, outputs);
  }
  Status backward(std::vector<Edge>& outputs) {
    const Tensor gradient = *Tensor::empty(device_, DType::kFloat32, Shape::row_major({kElements}));
    std::fill_n(reinterpret_cast<float*>(gradient.data()), kElements, 1.0F);
    return engine_.backward(outputs, std::vector<Tensor>(outputs.size(), gradient), false);
  }
  Status step() {
    std::vector<Edge> outputs;
    LOCKSTEP_RETURN_IF_ERROR(forward(outputs));
    return backward(outputs);
  }
  // The last rank is out of inputs at once, all others after one step.
  Status train_unevenly() {
    LOCKSTEP_RETURN_IF_ERROR(parallel_->begin_join());
    if (rank_ + 1 < job_.ranks) LOCKSTEP_RETURN_IF_ERROR(step());
    return parallel_->end_join();
  }

  bool expect(const Status& status) {
    if (!status.ok()) fail(status);
    return status.ok();
  }
  void fail(const Status& status) {
    marks_.problem = "rank " + std::to_string(rank_) + " in phase " +
                     scaling::name_of(static_cast<Phase>(marks_.ends.size())) + ": " +
                     status.to_string();
  }
  void mark() {
    Marks::Mark mark{job_.scheduler.now(), 0, 0, store_calls_};
    for (const Mesh* mesh : meshes_) {
      const Mesh::Traffic& sent = mesh->sent_by(static_cast<int>(rank_));
      mark.messages += sent.messages;
      mark.bytes += sent.bytes;
    }
    marks_.ends.push_back(mark);
  }

  SimulatedJob& job_;
  const std::uint32_t rank_;
  Marks& marks_;
  std::vector<const Mesh*> meshes_;
  std::uint64_t store_calls_ = 0;
  HostDevice device_;
  Engine engine_{0};
  std::vector<Ref<Parameter>> parameters_;
  std::unique_ptr<DataParallel> parallel_;
};

// Of the ranks that reached the end of the phase, which all but the last one must.
scaling::Point point_of(const std::vector<Marks>& ranks, std::size_t phase) {
  scaling::Point point{static_cast<std::uint32_t>(ranks.size()), static_cast<Phase>(phase)};
  Duration begin{0};
  Duration end{0};
  for (const Marks& marks : ranks) {
    if (marks.ends.size() <= phase) continue;
    const Marks::Mark before = phase == 0 ? Marks::Mark() : marks.ends[phase - 1];
    const Marks::Mark& after = marks.ends[phase];
    begin = std::max(begin, before.at);
    end = std::max(end, after.at);
    const auto larger = [](double& most, std::uint64_t value) {
      most = std::max(most, static_cast<double>(value));
    };
    larger(point.messages, after.messages - before.messages);
    larger(point.bytes, after.bytes - before.bytes);
    larger(point.store, after.store - before.store);
  }
  point.virtual_us = static_cast<double>((end - begin).count()) / 1000;
  return point;
}

}  // namespace

scaling::Run measure_scaling(std::uint32_t ranks) {
  SimulatedJob job(ranks);
  std::vector<Marks> marks(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    job.scheduler.spawn("rank " + std::to_string(rank), rank,
                        [&job, rank, &marks] { ScalingRank(job, rank, marks[rank]).train(); });
  const simulation::Outcome& outcome = job.scheduler.run();
  scaling::Run run;
  if (outcome.end != End::kFinished)
    run.problem =
        "the job did not end: " + outcome.wait_graph.substr(0, outcome.wait_graph.find('\n'));
  for (const Marks& each : marks)
    if (!each.problem.empty() && run.problem.empty()) run.problem = each.problem;
  for (std::uint32_t rank = 0; rank + 1 < ranks; ++rank)
    if (marks[rank].ends.size() != kPhases && run.problem.empty())
      run.problem = "rank " + std::to_string(rank) + " did not go through all phases";
  for (std::size_t phase = 0; phase < kPhases && run.problem.empty(); ++phase)
    run.points.push_back(point_of(marks, phase));
  return run;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
