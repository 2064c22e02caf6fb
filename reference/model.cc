#include "reference/model.h"

#include <algorithm>
#include <cassert>
#include <memory>

#include "reference/arithmetic.h"
#include "reference/buckets.h"
#include "reference/running_model.h"
#include "reference/shares.h"
#include "reference/torch_model.h"

namespace lockstep::reference {
Model::Model(const Program& program, const Contract& contract, std::uint32_t group,
             Expectation& out)
    : program_(program),
      contract_(contract),
      group_(group),
      out_(out),
      memory_(program),
      graph_(memory_.owners),
      power_sgd_(program),
      states_(program) {
  const std::size_t parameters = program.parameters.size();
  assign_buckets(program_, contract_, nullptr, out_.buckets);
  out_.rebuilt.clear();
  out_.bits.clear();
  out_.shares.clear();
  out_.steps.resize(program_.steps.size());
  gradients_.resize(program.world * parameters);
  elements_.resize(program.world * memory_.total);
  const auto is_sparse = [](const Parameter& parameter) { return parameter.sparse; };
  if (std::any_of(program.parameters.begin(), program.parameters.end(), is_sparse)) {
    entries_.resize(program.world * parameters);
    for (std::vector<Entries>& sums : sparse_sums_) sums.resize(parameters);
  }
  hooks_per_pass_.resize(program.world * parameters);
  is_in_use_.resize(parameters);
  hooks_.resize(parameters);
  hooks_now_.resize(parameters);
  is_left_out_.resize(parameters);
  is_unknown_.resize(parameters);
  is_power_loose_.resize(parameters);
  copies_.resize(parameters);
  for (const std::uint32_t part : memory_.parts)
    if (original(part) != part) copies_[original(part)].push_back(part);
}

void Model::place_in_buckets() {
  for (std::uint32_t b = 0; b < buckets().size(); ++b) {
    const ExpectedBucket& bucket = buckets()[b];
    for (std::size_t member = 0; member < bucket.parameters.size(); ++member) {
      memory_.places[bucket.parameters[member]].bucket = b;
      memory_.places[bucket.parameters[member]].offset =
          bucket.offsets[member] * parts_of(bucket.dtype);
    }
  }
  for (const std::uint32_t part : memory_.parts)
    memory_.places[part].bucket = memory_.places[original(part)].bucket;
}

// What every new group, and every new reducer, begins with.
void Model::start_over() {
  power_sgd_.forget();
  std::fill(is_power_loose_.begin(), is_power_loose_.end(), std::uint8_t{0});
  is_counted_ = false;
  has_counted_.assign(program_.world, 0);
  is_recorded_ = false;
  layout_ = 0;
  is_window_open_ = false;
  is_copied_.assign(program_.world, 0);
  place_in_buckets();
  order_additions();
}

// Gradients stay, and so does their use; views of buckets that are gone are ordinary gradients.
void Model::renew() {
  for (Gradient& each : gradients_) each.in_bucket = false;
  start_over();
  if (!survivors_.empty()) states_.broadcast_all(survivors_, survivors_.front());
}

// F4, as model.h has it.
void Model::recover(const std::vector<std::uint32_t>& survivors) {
  std::fill(gradients_.begin(), gradients_.end(), Gradient{});
  survivors_.clear();
  for (const std::uint32_t rank : survivors)
    if (group_of(program_, rank) == group_) survivors_.push_back(rank);
  if (!survivors_.empty()) root_ = survivors_.front();
  if (!survivors_.empty()) states_.begin(survivors_);
  start_over();
}

void Model::choose_active(std::uint32_t step) {
  active_.clear();
  for (const std::uint32_t rank : survivors_)
    if (has_input(program_, rank, step)) active_.push_back(rank);
}

// S2: what those who train start, they announce, so that the others start it with them. Three
// events, two options and a flag for each rank of the group.
void Model::announce(std::vector<ExpectedCollective>& collectives, std::uint32_t call) {
  if (program_.options.join == Join::kNone) return;
  ExpectedCollective& announced = collectives.emplace_back();
  announced.op = ExpectedCollective::Op::kAnnounce;
  announced.count = 3 + 2 + survivors_.size();
  root_ = active_.front();
  ends_early_ = program_.options.early_termination && active_.size() < survivors_.size();
  early_call_ = call;
}

// All who train learn it in the same call, before anything was touched.
void Model::end_early(ExpectedStep& expected) const {
  expected.any_error = true;
  for (const std::uint32_t rank : active_) {
    expected.ranks[rank].outcome = Outcome::kOwnError;
    expected.ranks[rank].error = Error::kUnevenInputs;
    expected.ranks[rank].error_call = early_call_;
  }
}

// P15: outside of a window; buffers once at least.
void Model::copy_to_replicas(const Step& step) {
  if (is_window_open_) return;
  for (const std::uint32_t rank : active_) {
    if (step.variants[rank % step.variants.size()].skip) continue;
    const bool is_first = is_copied_[rank] == 0;
    is_copied_[rank] = 1;
    states_.copy_to_replicas(rank, is_first || !program_.options.keep_buffers);
  }
}

// S3: the buffers are broadcast before the first forward of a sync window, then each forward
// changes them.
void Model::run_forwards(const Step& step, std::vector<ExpectedCollective>& collectives) {
  if (step.kind == PassKind::kNoGrad) copy_to_replicas(step);
  if (step.kind == PassKind::kNoGrad || active_.empty()) return;
  const std::vector<std::uint64_t> chunks = states_.buffer_chunks();
  if (!is_window_open_ && !program_.options.keep_buffers && !chunks.empty()) {
    announce(collectives, kForwardCall);
    if (ends_early_) return;
    states_.broadcast_buffers(survivors_, active_.front());
    for (const std::uint64_t bytes : chunks) {
      ExpectedCollective& chunk = collectives.emplace_back();
      chunk.op = ExpectedCollective::Op::kBroadcastBuffers;
      chunk.count = bytes;
    }
  }
  copy_to_replicas(step);
  is_window_open_ = true;
  for (const std::uint32_t rank : active_) {
    const RankPass& pass = step.variants[rank % step.variants.size()];
    for (std::uint32_t f = 0; f < pass.forwards.size(); ++f) states_.run_forward(rank, step.key, f);
  }
}

void Model::rebuild_if_due(std::uint32_t step, const std::vector<ReadyOrder>& ready_orders,
                           std::vector<ExpectedCollective>& collectives) {
  const bool is_synced = program_.steps[step].kind == PassKind::kSynced && !active_.empty();
  if (!may_rebuild() || !is_synced || !is_recorded_ || layout_ != 0 || memory_.reduced.empty())
    return;
  announce(collectives, kForwardCall);
  if (ends_early_) return;
  rebuild(step, ready_orders);
  ExpectedCollective& broadcast = collectives.emplace_back();
  broadcast.op = ExpectedCollective::Op::kBroadcastOrder;
  broadcast.count = memory_.reduced.size();
}

// S2: all have what those have who trained last.
void Model::end_join() {
  if (survivors_.empty()) return;
  states_.broadcast_all(survivors_, root_);
  root_ = survivors_.front();
  is_window_open_ = false;
}

void Model::end() {
  out_.ending.clear();
  if (program_.options.join == Join::kNone) return;
  end_join();
  for (Gradient& each : gradients_) each.touched = true;
  std::fill(is_unknown_.begin(), is_unknown_.end(), std::uint8_t{0});
  prepare(out_.ending);
  for (const std::uint32_t rank : survivors_) out_.ending[rank].present = true;
  record(out_.ending);
}

// G3, of a sum of so many elements.
std::vector<OrderRun> Model::order_of(std::uint64_t count, DType wire) const {
  const auto ranks = static_cast<std::uint32_t>(survivors_.size());
  switch (program_.options.order) {
    case Order::kRing:
      if (program_.options.transport == Transport::kNccl)
        return nccl_ring(ranks, count, size_of(wire) / parts_of(wire));
      return gloo_ring(ranks, count, size_of(wire) / parts_of(wire), contract_.max_segment_bytes);
    case Order::kBcube:
      return gloo_bcube(ranks, count);
    case Order::kRankOrder:
      break;
  }
  return rank_order(ranks, count);
}

void Model::order_additions() {
  orders_.clear();
  if (survivors_.empty()) return;
  for (const ExpectedBucket& bucket : buckets())
    orders_.push_back(order_of(bucket.count * parts_of(bucket.dtype),
                               wire_dtype(program_.options.hook, bucket.dtype)));
}

// B2. Gradients that lie in buckets move along.
void Model::rebuild(std::uint32_t step, const std::vector<ReadyOrder>& ready_orders) {
  const std::vector<std::uint32_t>* order = &memory_.reduced;
  std::vector<std::uint32_t> told;
  for (const ReadyOrder& each : ready_orders) {
    if (each.step != step || group_of(program_, each.rank) != group_) continue;
    told = each.parameters;
    std::erase_if(told, [&](std::uint32_t p) {  // another reducer's
      return p >= is_in_use_.size() || !reference::is_reduced(program_.parameters[p]);
    });
    if (std::is_permutation(told.begin(), told.end(), memory_.reduced.begin(),
                            memory_.reduced.end()))
      order = &told;
    break;
  }
  assign_buckets(program_, contract_, order, out_.rebuilt.emplace_back());
  layout_ = static_cast<std::uint32_t>(out_.rebuilt.size());
  is_rebuilding_ = true;
  place_in_buckets();
  order_additions();
}

const ExpectedStep& Model::run_step(std::uint32_t index,
                                    const std::vector<ReadyOrder>& ready_orders) {
  ExpectedStep& expected = out_.steps[index];
  expected.collectives.clear();
  is_rebuilding_ = ends_early_ = false;
  choose_active(index);
  run_forwards(program_.steps[index], expected.collectives);
  if (!ends_early_) rebuild_if_due(index, ready_orders, expected.collectives);
  expected.layout = layout_;
  run_step(program_.steps[index], expected);
  return expected;
}

void Model::prepare(std::vector<ExpectedRankStep>& ranks) const {
  ranks.resize(program_.world);
  for (ExpectedRankStep& rank : ranks) {
    rank.present = false;
    rank.outcome = Outcome::kSuccess;
    rank.error = Error::kNone;
    rank.error_call = 0;
    rank.parameters.clear();
    rank.requiring.clear();
    rank.state.clear();
    rank.gradients.assign(program_.parameters.size(), ExpectedGradient{});
  }
}

void Model::run_step(const Step& step, ExpectedStep& expected) {
  expected.any_error = false;
  expected.is_reduced = false;
  prepare(expected.ranks);
  for (Gradient& each : gradients_) each.touched = each.reduced = false;
  std::fill(is_unknown_.begin(), is_unknown_.end(), std::uint8_t{0});
  blocking_ranks_ = 0;

  for (const std::uint32_t rank : survivors_) expected.ranks[rank].present = true;
  // After normalize() either every rank keeps outputs or none does.
  const bool is_pass =
      step.kind == PassKind::kSynced && !active_.empty() && kept_outputs(step.variants.front()) > 0;
  if (is_pass && !ends_early_) announce(expected.collectives, 0);
  if (ends_early_) return end_early(expected);
  for (const std::uint32_t rank : active_) train(step, rank, expected.ranks[rank]);
  if (is_pass) {
    list_collectives(expected);
    decide_outcomes(expected);
    if (!expected.any_error || blocking_ranks_ == 0) reduce();
    expected.is_reduced = true;
    for (const std::uint32_t rank : active_) has_counted_[rank] = 1;
    is_counted_ = is_static();  // after an error the group starts over
    is_recorded_ = is_recorded_ || active_.size() == survivors_.size();
    is_window_open_ = false;
    for (const std::uint32_t rank : active_) states_.train(rank, step.key);
  }
  record(expected.ranks);
}

Expectation run(const Program& program, const Contract& contract,
                const std::vector<Recovery>& recoveries,
                const std::vector<ReadyOrder>& ready_orders) {
  Expectation out;
  run(program, contract, recoveries, ready_orders, out);
  return out;
}

namespace {

// `models` go step by step: after an own error in one of them, all recover.
void run_together(const Program& program, std::vector<Model*> models,
                  const std::vector<Recovery>& recoveries,
                  const std::vector<ReadyOrder>& ready_orders) {
  std::vector<std::uint32_t> survivors(program.world);
  for (std::uint32_t rank = 0; rank < program.world; ++rank) survivors[rank] = rank;
  const auto recover = [&] {
    for (Model* model : models) model->recover(survivors);
  };
  recover();
  auto recovery = recoveries.begin();
  const auto recover_before = [&](std::size_t step) {
    for (; recovery != recoveries.end() && recovery->before_step <= step; ++recovery) {
      assert(std::is_sorted(recovery->survivors.begin(), recovery->survivors.end()));
      survivors = recovery->survivors;
      recover();
    }
  };
  for (std::uint32_t step = 0; step < program.steps.size(); ++step) {
    recover_before(step);
    for (Model* model : models) {
      if (step > 0 && step == program.second_join) model->end_join();
      if (step > 0 && step == program.renewed) model->renew();
    }
    bool any_error = false;
    for (Model* model : models)
      any_error = model->run_step(step, ready_orders).any_error || any_error;
    if (any_error) recover();
  }
  recover_before(~std::size_t{0});
  for (Model* model : models) model->end();
}

}  // namespace

void run(const Program& program, const Contract& contract, const std::vector<Recovery>& recoveries,
         const std::vector<ReadyOrder>& ready_orders, Expectation& out) {
  if (contract.is_hook_by_hook) return run_hook_by_hook(program, contract, recoveries, out);
  const std::uint32_t reducers = reducer_count(program);
  const std::uint32_t groups = group_count(program);
  if (reducers * groups == 1) {
    Model model(program, contract, 0, out);
    return run_together(program, {&model}, recoveries, ready_orders);
  }
  std::vector<Program> programs;
  for (std::uint32_t reducer = 0; reducer < reducers; ++reducer)
    programs.push_back(share_of(program, reducer));
  out.shares.resize(std::size_t{groups} * reducers);
  std::vector<std::unique_ptr<Model>> owned;
  std::vector<Model*> models;
  for (std::uint32_t group = 0; group < groups; ++group)
    for (std::uint32_t reducer = 0; reducer < reducers; ++reducer) {
      owned.push_back(
          std::make_unique<Model>(programs[reducer], contract, group, out.shares[models.size()]));
      models.push_back(owned.back().get());
    }
  run_together(program, models, recoveries, ready_orders);
  merge_expectations(program, out);
}

}  // namespace lockstep::reference
