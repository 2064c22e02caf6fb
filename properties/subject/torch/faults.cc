#include "properties/subject/torch/faults.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace lockstep::torch_subject {
namespace {

void sleep_us(std::uint32_t us) {
  if (us != 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

}  // namespace

RankFaults::RankFaults(const properties::RankJob& job) : job_(job) {
  const reference::Program& program = job.c->program;
  const auto steps = static_cast<std::uint32_t>(program.steps.size());
  faults::FaultPlan plan;
  for (const faults::Fault& fault : job.c->faults.faults) {
    if (faults::is_of_host(fault.kind) && !job.begin_host_faults) continue;
    // Who takes the place of a rank does not end as that did.
    if (faults::ends_process(fault.kind) && fault.rank == job.rank && job.joining) continue;
    plan.faults.push_back(fault);
  }
  injector_.reset(plan, program.world, std::max(steps, 1U));
}

void RankFaults::at_connect(std::uint32_t step) {
  std::vector<faults::Fault> begun;
  {
    const std::scoped_lock lock(mutex_);
    injector_.begin_reset(job_.rank, step);
    begun = injector_.on_connect(job_.rank);
  }
  if (!begun.empty()) job_.begin_host_faults(begun);
}

void RankFaults::begin_step(std::uint32_t step) {
  const std::scoped_lock lock(mutex_);
  injector_.begin_step(job_.rank, step);
}

void RankFaults::end_step() {
  const std::scoped_lock lock(mutex_);
  injector_.end_step(job_.rank);
}

void RankFaults::at_collective() {
  faults::OperationFault fault;
  {
    const std::scoped_lock lock(mutex_);
    fault = injector_.on_operation(job_.rank);
  }
  if (fault.exit) job_.exit_process(fired());
  if (!fault.of_host.empty()) job_.begin_host_faults(fault.of_host);
  if (fault.left_out) job_.leave_group(fault.is_cut_off, fault.away_us);
  if (fault.pause_us != 0) job_.pause_process(fault.pause_us);
  if (fault.stall) job_.stop_process();
  sleep_us(fault.delay_us);
}

void RankFaults::at_node() {
  faults::NodeFault fault;
  {
    const std::scoped_lock lock(mutex_);
    fault = injector_.on_node(job_.rank);
  }
  sleep_us(fault.slow_us);
  if (fault.throws) throw std::runtime_error("planned by the case");
}

faults::Fired RankFaults::fired() const {
  const std::scoped_lock lock(mutex_);
  return injector_.fired();
}

}  // namespace lockstep::torch_subject
