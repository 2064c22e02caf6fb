#include "reference/model.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "reference/arithmetic.h"
#include "reference/buckets.h"
#include "reference/graph.h"
#include "reference/order.h"
#include "reference/power_sgd.h"
#include "reference/state.h"
#include "reference/torch_model.h"
#include "reference/values.h"

namespace lockstep::reference {
namespace {

constexpr std::uint32_t kNever = ~std::uint32_t{0};  // of hooks

// Where a parameter that is trained lies: in the arrays of elements, and in its bucket.
struct Place {
  std::size_t start = 0;  // of its elements, in memory order
  std::size_t count = 0;
  std::uint32_t bucket = 0;
  std::uint64_t offset = 0;  // in the bucket
};

// The gradient of one parameter on one rank; its elements are in Model::elements_.
struct Gradient {
  bool defined = false;
  bool used = false;       // G6, since it was last zeroed or reduced
  bool touched = false;    // since the step's first backward
  bool reduced = false;    // in this step
  bool recorded = false;   // its bits are in Expectation::bits, at `offset`
  bool in_bucket = false;  // B7
  bool loose = false;      // added to in an order that time decides: the bits are not known
  std::uint64_t offset = 0;
};

std::vector<std::uint32_t> owners_of(const Program& program) {
  std::vector<std::uint32_t> owners;
  for (std::uint32_t i = 0; i < program.parameters.size(); ++i) {
    const std::uint32_t owner = owner_of(program, i);
    owners.push_back(program.parameters[owner].frozen ? kNotTrained : owner);
  }
  return owners;
}

class Model {
 public:
  Model(const Program& program, const Contract& contract, Expectation& out);
  void run(const std::vector<Recovery>& recoveries, const std::vector<ReadyOrder>& ready_orders);

 private:
  void lay_out_elements();
  void place_in_buckets();
  std::vector<OrderRun> order_of(std::uint64_t count, DType wire) const;
  void order_additions();
  void rebuild(std::uint32_t step, const std::vector<ReadyOrder>& ready_orders);
  const std::vector<ExpectedBucket>& buckets() const {
    return layout_ == 0 ? out_.buckets : out_.rebuilt[layout_ - 1];
  }
  void recover(const std::vector<std::uint32_t>& survivors);
  void choose_active(std::uint32_t step);
  void announce(std::vector<ExpectedCollective>& collectives);
  void run_forwards(const Step& step, std::vector<ExpectedCollective>& collectives);
  void rebuild_if_due(std::uint32_t step, const std::vector<ReadyOrder>& ready_orders,
                      std::vector<ExpectedCollective>& collectives);
  void end();
  void prepare(std::vector<ExpectedRankStep>& ranks) const;
  void run_step(const Step& step, ExpectedStep& expected);

  // One rank's part of a step, up to the reduction.
  void zero(std::uint32_t rank, ZeroGrad kind);
  void train(const Step& step, std::uint32_t rank, ExpectedRankStep& expected);
  std::uint32_t hooks_due(std::uint32_t rank, std::uint32_t parameter) const;
  void find_elsewhere(const RankPass& pass, std::uint32_t calls);
  bool find_ready_twice(const std::vector<Event>& events, std::uint32_t rank,
                        std::vector<std::uint32_t>& found);
  bool find_new_use(std::uint32_t rank, std::vector<std::uint32_t>& found);
  std::vector<std::uint32_t> missing(std::uint32_t rank) const;
  bool blocks_others(std::uint32_t rank, Error error) const;
  void accumulate(std::uint32_t rank, std::uint32_t step_key, const std::vector<Event>& events);
  void add_tensor(const Event& event, std::uint32_t rank, std::uint32_t step_key, double* sums);
  bool adds_exactly(std::uint32_t parameter, const double* values) const;
  void add_sum(std::uint32_t parameter, std::uint32_t rank, const double* sums);

  // All ranks.
  void decide_outcomes(ExpectedStep& expected);
  void list_collectives(ExpectedStep& expected) const;
  void reduce();
  void reduce_one(std::uint32_t parameter);
  bool is_power_sgd(const ExpectedBucket& bucket) const;
  void reduce_by_power_sgd(const ExpectedBucket& bucket);
  void set_reduced(std::uint32_t parameter, bool is_loose);
  void record(std::vector<ExpectedRankStep>& ranks);
  std::uint64_t record_bits(std::uint32_t rank, std::uint32_t parameter);

  Gradient& gradient(std::uint32_t rank, std::uint32_t parameter) {
    return gradients_[rank * program_.parameters.size() + parameter];
  }
  double* elements(std::uint32_t rank, std::uint32_t parameter) {
    return elements_.data() + rank * total_ + places_[parameter].start;
  }
  // S2: whether the rank has inputs in this step, and N.
  bool trains(std::uint32_t rank) const {
    return std::binary_search(active_.begin(), active_.end(), rank);
  }
  std::uint32_t divisor() const {
    const bool by_active = program_.options.join == Join::kByActive;
    return static_cast<std::uint32_t>(by_active ? active_.size() : survivors_.size());
  }
  bool is_dynamic() const { return program_.options.mode == Mode::kDynamic; }
  bool is_after_backward() const { return program_.options.launch == Launch::kAfterBackward; }
  bool may_rebuild() const {
    return program_.options.rebuild && program_.options.pinned == 0 && !is_after_backward();
  }
  bool is_static() const { return program_.options.mode == Mode::kStatic; }
  bool is_reduced(std::uint32_t parameter) const {
    return is_in_use_[parameter] || program_.options.mode == Mode::kPlain;
  }

  const Program& program_;
  const Contract contract_;
  Expectation& out_;
  const std::vector<std::uint32_t> owners_;  // of every parameter, or kNotTrained
  std::vector<std::uint32_t> trained_;       // the owners, ascending
  std::vector<std::uint32_t> reduced_;       // those of them that are reduced
  std::vector<Place> places_;                // by parameter
  std::vector<std::uint32_t> memory_of_;     // by start and row-major index: memory order
  std::size_t total_ = 0;                    // elements of all that are trained
  Graph graph_;

  std::vector<std::uint32_t> survivors_;
  std::vector<std::uint32_t> active_;          // those of them that have inputs for the step (S2)
  std::uint32_t root_ = 0;                     // the first that trained in the last event
  std::vector<std::vector<OrderRun>> orders_;  // by bucket, for this many survivors
  std::vector<Gradient> gradients_;
  std::vector<double> elements_;
  // Sums of one backward call, by depth of nested calls; a depth is allocated when first used.
  std::array<std::vector<double>, kMaxDepth + 1> sums_;
  std::vector<double> arrived_;        // the tensor of one use
  std::vector<double> contributions_;  // to one parameter, scaled, by position in the group

  PowerSgd power_sgd_;
  std::vector<std::uint8_t> is_power_loose_;  // by parameter: what it keeps is not known

  // B2: 0, or 1 + the index into Expectation::rebuilt.
  std::uint32_t layout_ = 0;
  bool is_rebuilding_ = false;  // in this step
  bool is_recorded_ = false;    // the group has completed a synced pass
  States states_;               // S3
  bool is_window_open_ = false;
  // P11, kStatic: what the group's first synced pass has shown.
  bool is_counted_ = false;
  std::vector<std::uint32_t> hooks_per_pass_;  // by rank and parameter
  std::vector<std::uint8_t> is_in_use_;        // by parameter: some rank used it

  // Of the rank whose backward calls are run, by parameter.
  std::vector<std::uint32_t> hooks_;         // that fired in this pass
  std::vector<std::uint32_t> hooks_now_;     // in this call
  std::vector<std::uint32_t> sums_in_call_;  // of one backward call, by parameter: so far,
  std::vector<std::uint32_t> sums_due_;      // and in all
  std::vector<std::uint8_t> had_gradient_;   // before the call
  std::vector<std::uint8_t> is_exact_;       // all that was added in the call, and what was there
  std::vector<std::uint8_t> is_elsewhere_;   // see find_elsewhere()
  std::vector<std::uint8_t> is_left_out_;    // ready twice: not accumulated, the call fails anyway
  // Of the step.
  std::vector<std::uint8_t> is_unknown_;  // by parameter
  std::uint32_t blocking_ranks_ = 0;      // without whose buckets no other rank can end its pass
};

Model::Model(const Program& program, const Contract& contract, Expectation& out)
    : program_(program),
      contract_(contract),
      out_(out),
      owners_(owners_of(program)),
      graph_(owners_),
      power_sgd_(program),
      states_(program) {
  const std::size_t parameters = program.parameters.size();
  assign_buckets(program_, contract_, nullptr, out_.buckets);
  out_.rebuilt.clear();
  lay_out_elements();
  gradients_.resize(program.world * parameters);
  elements_.resize(program.world * total_);
  hooks_per_pass_.resize(program.world * parameters);
  is_in_use_.resize(parameters);
  hooks_.resize(parameters);
  hooks_now_.resize(parameters);
  is_left_out_.resize(parameters);
  is_unknown_.resize(parameters);
  is_power_loose_.resize(parameters);
}

void Model::lay_out_elements() {
  places_.resize(program_.parameters.size());
  for (std::uint32_t i = 0; i < program_.parameters.size(); ++i) {
    if (owners_[i] != i) continue;
    trained_.push_back(i);
    const Parameter& parameter = program_.parameters[i];
    if (reference::is_reduced(parameter)) reduced_.push_back(i);
    places_[i].start = total_;
    places_[i].count = element_count(parameter);
    total_ += places_[i].count;
    for (std::uint64_t element = 0; element < places_[i].count; ++element) {
      memory_of_.push_back(static_cast<std::uint32_t>(row_major_to_memory(parameter, element)));
    }
  }
}

void Model::place_in_buckets() {
  for (std::uint32_t b = 0; b < buckets().size(); ++b) {
    const ExpectedBucket& bucket = buckets()[b];
    for (std::size_t member = 0; member < bucket.parameters.size(); ++member) {
      places_[bucket.parameters[member]].bucket = b;
      places_[bucket.parameters[member]].offset = bucket.offsets[member];
    }
  }
}

// F4, as model.h has it.
void Model::recover(const std::vector<std::uint32_t>& survivors) {
  std::fill(gradients_.begin(), gradients_.end(), Gradient{});
  power_sgd_.forget();
  std::fill(is_power_loose_.begin(), is_power_loose_.end(), std::uint8_t{0});
  survivors_ = survivors;
  if (!survivors.empty()) root_ = survivors.front();
  is_counted_ = false;
  is_recorded_ = false;
  layout_ = 0;
  is_window_open_ = false;
  if (!survivors.empty()) states_.begin(survivors);
  place_in_buckets();
  order_additions();
}

void Model::choose_active(std::uint32_t step) {
  active_.clear();
  for (const std::uint32_t rank : survivors_)
    if (has_input(program_, rank, step)) active_.push_back(rank);
}

// S2: what those who train start, they announce, so that the others start it with them. Three
// events, two options and a flag for each rank of the group.
void Model::announce(std::vector<ExpectedCollective>& collectives) {
  if (program_.options.join == Join::kNone) return;
  ExpectedCollective& announced = collectives.emplace_back();
  announced.op = ExpectedCollective::Op::kAnnounce;
  announced.count = 3 + 2 + survivors_.size();
  root_ = active_.front();
}

// S3: the buffers are broadcast before the first forward of a sync window, then each forward
// changes them.
void Model::run_forwards(const Step& step, std::vector<ExpectedCollective>& collectives) {
  if (step.kind == PassKind::kNoGrad || active_.empty()) return;
  const std::vector<std::uint64_t> chunks = states_.buffer_chunks();
  if (!is_window_open_ && !program_.options.keep_buffers && !chunks.empty()) {
    announce(collectives);
    states_.broadcast_buffers(survivors_);
    for (const std::uint64_t bytes : chunks) {
      ExpectedCollective& chunk = collectives.emplace_back();
      chunk.op = ExpectedCollective::Op::kBroadcastBuffers;
      chunk.count = bytes;
    }
  }
  is_window_open_ = true;
  for (const std::uint32_t rank : active_) {
    const RankPass& pass = step.variants[rank % step.variants.size()];
    for (std::uint32_t f = 0; f < pass.forwards.size(); ++f) states_.run_forward(rank, step.key, f);
  }
}

void Model::rebuild_if_due(std::uint32_t step, const std::vector<ReadyOrder>& ready_orders,
                           std::vector<ExpectedCollective>& collectives) {
  const bool is_synced = program_.steps[step].kind == PassKind::kSynced && !active_.empty();
  if (!may_rebuild() || !is_synced || !is_recorded_ || layout_ != 0 || reduced_.empty()) return;
  announce(collectives);
  rebuild(step, ready_orders);
  ExpectedCollective& broadcast = collectives.emplace_back();
  broadcast.op = ExpectedCollective::Op::kBroadcastOrder;
  broadcast.count = reduced_.size();
}

// S2: when no rank has inputs any more, all have what those have who trained last.
void Model::end() {
  out_.ending.clear();
  if (program_.options.join == Join::kNone) return;
  if (!survivors_.empty()) states_.broadcast_all(survivors_, root_);
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
      return gloo_ring(ranks, count, size_of(wire), contract_.max_segment_bytes);
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
    orders_.push_back(order_of(bucket.count, wire_dtype(program_.options.hook, bucket.dtype)));
}

// B2. Gradients that lie in buckets move along.
void Model::rebuild(std::uint32_t step, const std::vector<ReadyOrder>& ready_orders) {
  const std::vector<std::uint32_t>* order = &reduced_;
  for (const ReadyOrder& each : ready_orders) {
    const auto& parameters = each.parameters;
    if (each.step == step &&
        std::is_permutation(parameters.begin(), parameters.end(), reduced_.begin(), reduced_.end()))
      order = &parameters;
  }
  assign_buckets(program_, contract_, order, out_.rebuilt.emplace_back());
  layout_ = static_cast<std::uint32_t>(out_.rebuilt.size());
  is_rebuilding_ = true;
  place_in_buckets();
  order_additions();
}

void Model::run(const std::vector<Recovery>& recoveries,
                const std::vector<ReadyOrder>& ready_orders) {
  std::vector<std::uint32_t> all(program_.world);
  for (std::uint32_t rank = 0; rank < program_.world; ++rank) all[rank] = rank;
  recover(all);
  out_.bits.clear();
  out_.steps.resize(program_.steps.size());
  auto recovery = recoveries.begin();
  for (std::size_t index = 0; index < program_.steps.size(); ++index) {
    for (; recovery != recoveries.end() && recovery->before_step <= index; ++recovery) {
      assert(std::is_sorted(recovery->survivors.begin(), recovery->survivors.end()));
      recover(recovery->survivors);
    }
    ExpectedStep& expected = out_.steps[index];
    expected.collectives.clear();
    is_rebuilding_ = false;
    choose_active(static_cast<std::uint32_t>(index));
    run_forwards(program_.steps[index], expected.collectives);
    rebuild_if_due(static_cast<std::uint32_t>(index), ready_orders, expected.collectives);
    expected.layout = layout_;
    run_step(program_.steps[index], expected);
    if (expected.any_error) recover(survivors_);
  }
  for (; recovery != recoveries.end(); ++recovery) recover(recovery->survivors);
  end();
}

void Model::prepare(std::vector<ExpectedRankStep>& ranks) const {
  ranks.resize(program_.world);
  for (ExpectedRankStep& rank : ranks) {
    rank.present = false;
    rank.outcome = Outcome::kSuccess;
    rank.error = Error::kNone;
    rank.error_call = 0;
    rank.parameters.clear();
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
  for (const std::uint32_t rank : active_) train(step, rank, expected.ranks[rank]);
  // After normalize() either every rank keeps outputs or none does.
  const bool is_synced = step.kind == PassKind::kSynced && !active_.empty();
  if (is_synced && kept_outputs(step.variants.front()) > 0) {
    announce(expected.collectives);
    list_collectives(expected);
    decide_outcomes(expected);
    if (!expected.any_error || blocking_ranks_ == 0) reduce();
    expected.is_reduced = true;
    is_counted_ = is_static();  // after an error the group starts over
    is_recorded_ = is_recorded_ || active_.size() == survivors_.size();
    is_window_open_ = false;
    for (const std::uint32_t rank : active_) states_.train(rank, step.key);
  }
  record(expected.ranks);
}

// P10: usage goes with the gradient.
void Model::zero(std::uint32_t rank, ZeroGrad kind) {
  if (kind == ZeroGrad::kKeep) return;
  for (const std::uint32_t parameter : trained_) {
    Gradient& zeroed = gradient(rank, parameter);
    if (kind == ZeroGrad::kUndefine) zeroed.defined = zeroed.in_bucket = false;
    zeroed.used = false;
    zeroed.loose = false;
    zeroed.recorded = false;
    std::fill_n(elements(rank, parameter), places_[parameter].count, 0.0);
  }
}

// The step's backward calls on one rank, and the error that they end in (P5, P6, P7).
void Model::train(const Step& step, std::uint32_t rank, ExpectedRankStep& expected) {
  const RankPass& pass = step.variants[rank % step.variants.size()];
  if (pass.skip && step.kind == PassKind::kNoGrad) return;
  zero(rank, step.zero_grad);
  if (step.kind == PassKind::kNoGrad || kept_outputs(pass) == 0) return;
  const bool is_synced = step.kind == PassKind::kSynced;
  std::fill(hooks_.begin(), hooks_.end(), 0U);
  std::fill(is_left_out_.begin(), is_left_out_.end(), std::uint8_t{0});

  const std::uint32_t calls = call_count(pass);
  bool is_complete = false;
  for (std::uint32_t call = 0; call < calls; ++call) {
    expected.error_call = call;
    if (is_complete) {  // before anything is touched
      expected.error = Error::kSecondBackward;
      return;
    }
    if (is_synced && is_dynamic()) find_elsewhere(pass, calls);
    const std::vector<Event>& events = graph_.backward(pass, call);
    if (is_synced && find_ready_twice(events, rank, expected.parameters)) {
      expected.error = Error::kReadyTwice;
    }
    accumulate(rank, step.key, events);
    if (is_synced && expected.error == Error::kNone && find_new_use(rank, expected.parameters)) {
      expected.error = Error::kUsageChanged;
    }
    if (expected.error != Error::kNone) {
      const bool is_early = !is_dynamic() || is_after_backward();
      if (is_early && blocks_others(rank, expected.error)) ++blocking_ranks_;
      return;
    }
    // In dynamic mode whatever did not fire in the first call counts as unused.
    is_complete = is_synced && (is_dynamic() || missing(rank).empty());
  }
  expected.error_call = 0;
  if (!is_synced || is_complete) return;
  if (is_static() && !is_counted_ && !leaves_outputs(pass)) {
    std::copy(hooks_.begin(), hooks_.end(),
              hooks_per_pass_.begin() + static_cast<std::ptrdiff_t>(rank * hooks_.size()));
    return;
  }
  expected.error = Error::kIncomplete;
  expected.error_call = leaves_outputs(pass) ? calls : calls - 1;
  expected.parameters = missing(rank);
  if (blocks_others(rank, expected.error)) ++blocking_ranks_;
}

// After how many hooks of a pass the parameter is ready. While static mode counts, nothing is
// before the pass has ended.
std::uint32_t Model::hooks_due(std::uint32_t rank, std::uint32_t parameter) const {
  if (!is_static()) return 1;
  return is_counted_ ? hooks_per_pass_[rank * program_.parameters.size() + parameter] : kNever;
}

// P6, dynamic mode: what the first call of a pass does not reach from outside of checkpoints, but
// an output of another forward that is alive does: the unused search has seen it.
void Model::find_elsewhere(const RankPass& pass, std::uint32_t calls) {
  is_elsewhere_.assign(program_.parameters.size(), 0);
  if (calls == 1 && !pass.keep_outputs) return;  // the others were let go
  const auto note = [this](const RankPass& outputs, std::uint8_t value) {
    if (kept_outputs(outputs) == 0) return;
    for (const Event& event : graph_.backward(outputs, 0))
      if (event.kind == Event::Kind::kHook && event.depth == 0)
        is_elsewhere_[event.parameter] = value;
  };
  RankPass all = pass;
  all.backwards.clear();
  note(all, 1);
  if (pass.backwards.empty() || pass.backwards[0].roots.empty()) return note(all, 0);
  RankPass of_call = all;
  std::uint32_t before = 0;
  const std::uint32_t count = kept_outputs(pass);
  for (Forward& forward : of_call.forwards) {
    if (forward.discard) continue;
    const std::uint32_t end = before + static_cast<std::uint32_t>(forward.outputs.size());
    const auto& roots = pass.backwards[0].roots;
    forward.discard = std::none_of(roots.begin(), roots.end(), [&](std::uint32_t root) {
      return before <= root % count && root % count < end;
    });
    before = end;
  }
  note(of_call, 0);
}

// P6, for one call, and P11. In dynamic mode the unused search does not see into checkpoints: the
// first hook of the pass marked what is in there, so that its own hook counts as a second one. A
// parameter whose slot was filled by an earlier call was reduced with what it had then; of one that
// gets ready and fires once more in this call nobody can say which of its gradients is reduced.
bool Model::find_ready_twice(const std::vector<Event>& events, std::uint32_t rank,
                             std::vector<std::uint32_t>& found) {
  std::fill(hooks_now_.begin(), hooks_now_.end(), 0U);
  for (const Event& event : events) {
    if (event.kind != Event::Kind::kHook) continue;
    const bool is_marked = is_dynamic() && event.depth > 0 && !is_elsewhere_[event.parameter];
    hooks_now_[event.parameter] += is_marked ? 2 : 1;
  }
  for (const std::uint32_t parameter : reduced_) {
    const std::uint32_t before = hooks_[parameter];
    const std::uint32_t due = hooks_due(rank, parameter);
    hooks_[parameter] += hooks_now_[parameter];
    if (hooks_now_[parameter] == 0 || hooks_[parameter] <= due) continue;
    found.push_back(parameter);
    is_left_out_[parameter] = 1;
    if (before < due) is_unknown_[parameter] = 1;
  }
  return !found.empty();
}

// P11: what no rank used in the counted pass is not reduced; that a rank uses it now is an error.
bool Model::find_new_use(std::uint32_t rank, std::vector<std::uint32_t>& found) {
  if (!is_static() || !is_counted_) return false;
  for (const std::uint32_t parameter : reduced_) {
    const bool is_ready = hooks_[parameter] >= hooks_due(rank, parameter);
    if (is_ready && gradient(rank, parameter).used && !is_in_use_[parameter])
      found.push_back(parameter);
  }
  return !found.empty();
}

// Those whose hooks did not all fire in this pass, ascending.
std::vector<std::uint32_t> Model::missing(std::uint32_t rank) const {
  std::vector<std::uint32_t> missing;
  for (const std::uint32_t parameter : reduced_) {
    if (hooks_[parameter] < hooks_due(rank, parameter)) missing.push_back(parameter);
  }
  return missing;
}

// A rank that lacks parameters launches the bucket of none of them, and no later one (P3); while
// static mode counts, not even the usage map. Whether the others notice that a bucket without
// elements was not launched is left open. After backward (P14) a rank launches all buckets or, when
// its backward failed or its pass is not complete, none.
bool Model::blocks_others(std::uint32_t rank, Error error) const {
  const std::vector<std::uint32_t> lacking = missing(rank);
  if (is_static() && !is_counted_ && !lacking.empty()) return true;
  std::size_t first = buckets().size();
  if (is_after_backward() && (error == Error::kReadyTwice || !lacking.empty())) first = 0;
  for (const std::uint32_t parameter : lacking) {
    first = std::min<std::size_t>(first, places_[parameter].bucket);
  }
  return std::any_of(buckets().begin() + static_cast<std::ptrdiff_t>(first), buckets().end(),
                     [](const ExpectedBucket& bucket) { return bucket.count > 0; });
}

void Model::accumulate(std::uint32_t rank, std::uint32_t step_key,
                       const std::vector<Event>& events) {
  sums_in_call_.assign(program_.parameters.size(), 0);
  sums_due_.assign(program_.parameters.size(), 0);
  had_gradient_.resize(program_.parameters.size());
  is_exact_.resize(program_.parameters.size());
  for (const Event& event : events) {
    if (event.kind == Event::Kind::kHook && event.defined) ++sums_due_[event.parameter];
  }
  for (const Event& event : events) {
    if (is_left_out_[event.parameter]) continue;
    std::vector<double>& sums = sums_[event.depth];
    if (sums.empty()) sums.resize(total_);
    if (event.kind == Event::Kind::kTensor) {
      add_tensor(event, rank, step_key, sums.data());
    } else if (event.defined) {
      add_sum(event.parameter, rank, sums.data());
    }
  }
}

// Adds the tensor of one use to what this call has for the parameter.
void Model::add_tensor(const Event& event, std::uint32_t rank, std::uint32_t step_key,
                       double* sums) {
  const Parameter& parameter = program_.parameters[event.parameter];
  const Place& place = places_[event.parameter];
  const UseValues values(program_, parameter, rank, step_key, event.node_key);
  if (arrived_.size() < place.count) arrived_.resize(place.count);
  double* sum = sums + place.start;
  double* tensor = event.first ? sum : arrived_.data();
  values.read(tensor, memory_of_.data() + place.start, place.count);
  multiply_values(parameter.dtype, tensor, event.scalar, place.count);
  if (!event.first) add_values(parameter.dtype, sum, tensor, place.count);
}

// Whether sums of such values are the same in every order: integers far below the last place. The
// 16-bit types run out of bits after a few additions.
bool Model::adds_exactly(std::uint32_t parameter, const double* values) const {
  if (size_of(program_.parameters[parameter].dtype) < 4) return false;
  return std::all_of(values, values + places_[parameter].count, [](double value) {
    return std::abs(value) < 1 << 20 && value == std::trunc(value);
  });
}

// G11: the sum of one call arrives at the gradient.
void Model::add_sum(std::uint32_t parameter, std::uint32_t rank, const double* sums) {
  const Place& place = places_[parameter];
  Gradient& target = gradient(rank, parameter);
  // A nested call and the outer one run side by side. Two sums commute; a third term, or what was
  // there before, does not.
  if (sums_due_[parameter] > 1) {
    const std::uint32_t terms = ++sums_in_call_[parameter];
    if (terms == 1) {
      had_gradient_[parameter] = target.defined;
      is_exact_[parameter] = !target.defined || adds_exactly(parameter, elements(rank, parameter));
    }
    if (!adds_exactly(parameter, sums + place.start)) is_exact_[parameter] = 0;
    if (terms > 1 && terms + had_gradient_[parameter] > 2 && !is_exact_[parameter])
      target.loose = true;
  }
  if (target.defined) {
    add_values(program_.parameters[parameter].dtype, elements(rank, parameter), sums + place.start,
               place.count);
  } else {
    std::copy_n(sums + place.start, place.count, elements(rank, parameter));
  }
  target.defined = true;
  target.used = true;
  target.touched = true;
  target.recorded = false;
}

// What a rank's own error means for the others. A second backward (P7) is reached only when the
// first one had all the others' buckets; every other own error comes whatever the others do.
void Model::decide_outcomes(ExpectedStep& expected) {
  const bool is_blocked = blocking_ranks_ > 0;
  for (const ExpectedRankStep& each : expected.ranks) {
    expected.any_error = expected.any_error || each.error != Error::kNone;
  }
  if (!expected.any_error) return;
  for (const std::uint32_t rank : active_) {
    ExpectedRankStep& each = expected.ranks[rank];
    if (each.error == Error::kNone) {
      each.outcome = is_blocked ? Outcome::kPeerError : Outcome::kSuccessOrPeerError;
    } else if (each.error == Error::kSecondBackward && is_blocked) {
      each.outcome = Outcome::kPeerError;
      each.error = Error::kNone;
      each.error_call = 0;
    } else {
      each.outcome = Outcome::kOwnError;
    }
  }
}

// T2.
void Model::list_collectives(ExpectedStep& expected) const {
  const bool has_usage_map = is_dynamic() || (is_static() && !is_counted_);
  ExpectedCollective usage;
  usage.op = ExpectedCollective::Op::kAllReduceUsage;
  usage.count = reduced_.size();
  if (has_usage_map && is_static() && !reduced_.empty()) expected.collectives.push_back(usage);
  for (std::uint32_t b = 0; b < buckets().size(); ++b) {
    ExpectedCollective collective;
    collective.bucket = b;
    const bool is_compressed = is_power_sgd(buckets()[b]);
    collective.count = is_compressed ? power_sgd_.first_count(buckets()[b]) : buckets()[b].count;
    collective.dtype = wire_dtype(program_.options.hook, buckets()[b].dtype);
    expected.collectives.push_back(collective);
  }
  if (has_usage_map && is_dynamic() && !reduced_.empty()) expected.collectives.push_back(usage);
  for (std::uint32_t b = 0; b < buckets().size(); ++b) {
    if (!is_power_sgd(buckets()[b])) continue;
    ExpectedCollective collective;
    collective.bucket = b;
    collective.count = power_sgd_.second_count(buckets()[b]);
    expected.collectives.push_back(collective);
  }
}

// G1, G5, G7, G8: of every parameter that some rank used, or in plain mode of every parameter. In
// static mode the counted pass decides (P11).
void Model::reduce() {
  for (const std::uint32_t parameter : reduced_) {
    if (!is_counted_) {
      is_in_use_[parameter] = std::any_of(active_.begin(), active_.end(), [&](std::uint32_t rank) {
        return gradient(rank, parameter).used;
      });
    }
    if (is_reduced(parameter) && !is_power_sgd(buckets()[places_[parameter].bucket]))
      reduce_one(parameter);
  }
  for (const ExpectedBucket& bucket : buckets())
    if (is_power_sgd(bucket)) reduce_by_power_sgd(bucket);
}

// G1, G2, G3. The additions of a run are carried out for the part of the run that lies in the
// parameter; padding is zeros and stays zeros. A hook scales as G2 says, and sums in its wire type
// (S4): every value of that is one of the parameter's dtype, too.
void Model::reduce_one(std::uint32_t parameter) {
  const DType dtype = program_.parameters[parameter].dtype;
  const DType wire = wire_dtype(program_.options.hook, dtype);
  const Place& place = places_[parameter];
  const std::size_t ranks = survivors_.size();
  if (contributions_.size() < ranks * place.count) contributions_.resize(ranks * place.count);
  const double factor = scale_factor(dtype, divisor());
  for (std::size_t i = 0; i < ranks; ++i) {
    double* scaled = contributions_.data() + i * place.count;
    if (trains(survivors_[i]) && gradient(survivors_[i], parameter).defined) {
      scale_values(dtype, scaled, elements(survivors_[i], parameter), factor, place.count);
      for (std::size_t e = 0; wire != dtype && e < place.count; ++e)
        scaled[e] = nearest(wire, scaled[e]);
    } else {
      std::fill_n(scaled, place.count, 0.0);
    }
  }
  std::size_t begin = 0;
  for (const OrderRun& run : orders_[place.bucket]) {
    if (run.end <= place.offset + begin) continue;
    if (begin == place.count) break;
    const std::size_t end = std::min<std::size_t>(place.count, run.end - place.offset);
    double* first = contributions_.data() + begin;
    for (std::size_t i = 0; i + 1 < ranks; ++i) {
      const Addition& addition = run.additions[i];
      add_values(wire, first + addition.into * place.count, first + addition.from * place.count,
                 end - begin);
    }
    for (const std::uint32_t rank : survivors_) {
      std::copy_n(first + run.result * place.count, end - begin, elements(rank, parameter) + begin);
    }
    begin = end;
  }
  assert(begin == place.count);
  set_reduced(parameter, std::any_of(active_.begin(), active_.end(), [&](std::uint32_t rank) {
                return gradient(rank, parameter).loose;
              }));
}

bool Model::is_power_sgd(const ExpectedBucket& bucket) const {
  return program_.options.hook == Hook::kPowerSgd && power_sgd_.second_count(bucket) > 0;
}

// S4. What no rank used takes part, too: a hook does not know.
void Model::reduce_by_power_sgd(const ExpectedBucket& bucket) {
  std::vector<std::vector<PowerSgd::Floats>> given(survivors_.size());
  for (const std::uint32_t parameter : bucket.parameters)  // nothing is kept of the others
    if (power_matrix(program_.parameters[parameter]).factors == 0) is_power_loose_[parameter] = 0;
  for (std::size_t i = 0; i < survivors_.size(); ++i) {
    for (const std::uint32_t parameter : bucket.parameters) {
      const double* from = elements(survivors_[i], parameter);
      const Gradient& own = gradient(survivors_[i], parameter);
      PowerSgd::Floats& values = given[i].emplace_back(places_[parameter].count, 0.0);
      if (!trains(survivors_[i]) || !own.defined) continue;
      std::copy_n(from, values.size(), values.begin());
      if (own.loose) is_power_loose_[parameter] = 1;
    }
  }
  const auto sum = [this](std::vector<PowerSgd::Floats> parts) {
    PowerSgd::Floats out;
    for (const OrderRun& run : order_of(parts[0].size(), DType::kFloat32)) {
      const std::size_t begin = out.size();
      for (std::size_t i = 0; i + 1 < parts.size(); ++i)
        add_values(DType::kFloat32, parts[run.additions[i].into].data() + begin,
                   parts[run.additions[i].from].data() + begin, run.end - begin);
      const double* result = parts[run.result].data();
      out.insert(out.end(), result + begin, result + run.end);
    }
    return out;
  };
  const auto results = power_sgd_.reduce(bucket, survivors_, divisor(), given, sum);
  for (std::size_t m = 0; m < bucket.parameters.size(); ++m) {
    const std::uint32_t parameter = bucket.parameters[m];
    if (!is_reduced(parameter)) continue;
    for (const std::uint32_t rank : survivors_)
      std::copy(results[m].begin(), results[m].end(), elements(rank, parameter));
    set_reduced(parameter, is_power_loose_[parameter] != 0);
  }
}

// All ranks have the same bits: they are written once.
void Model::set_reduced(std::uint32_t parameter, bool is_loose) {
  Gradient reduced;
  reduced.defined = true;
  reduced.touched = true;
  reduced.reduced = true;
  reduced.recorded = true;
  reduced.in_bucket = program_.options.views;
  reduced.loose = is_loose;
  reduced.offset = record_bits(survivors_.front(), parameter);
  for (const std::uint32_t rank : survivors_) gradient(rank, parameter) = reduced;
}

// What every survivor has after the step. A gradient that has kept its bits since an earlier step
// is not written again.
void Model::record(std::vector<ExpectedRankStep>& ranks) {
  for (const std::uint32_t rank : survivors_) {
    states_.record(rank, ranks[rank].state);
    for (std::uint32_t i = 0; i < owners_.size(); ++i) {
      if (owners_[i] == kNotTrained) continue;
      Gradient& actual = gradient(rank, owners_[i]);
      if (actual.defined && !actual.recorded) {
        actual.offset = record_bits(rank, owners_[i]);
        actual.recorded = true;
      }
      ExpectedGradient& written = ranks[rank].gradients[i];
      written.known = !is_unknown_[owners_[i]] && !actual.loose;
      written.defined = actual.defined;
      const bool is_moved = is_rebuilding_ && actual.in_bucket;
      written.untouched = actual.defined && !actual.touched && !is_moved;
      written.reduced = actual.reduced;
      written.in_bucket = actual.in_bucket;
      written.offset = actual.offset;
    }
  }
}

// Appends a gradient to the expectation, and says where it is.
std::uint64_t Model::record_bits(std::uint32_t rank, std::uint32_t parameter) {
  const DType dtype = program_.parameters[parameter].dtype;
  const Place& place = places_[parameter];
  const std::uint64_t offset = out_.bits.size();
  out_.bits.resize(offset + place.count);
  round_values(dtype, out_.bits.data() + offset, elements(rank, parameter),
               memory_of_.data() + place.start, place.count);
  return offset;
}

}  // namespace

Expectation run(const Program& program, const Contract& contract,
                const std::vector<Recovery>& recoveries,
                const std::vector<ReadyOrder>& ready_orders) {
  Expectation out;
  run(program, contract, recoveries, ready_orders, out);
  return out;
}

void run(const Program& program, const Contract& contract, const std::vector<Recovery>& recoveries,
         const std::vector<ReadyOrder>& ready_orders, Expectation& out) {
  if (contract.is_hook_by_hook) return run_hook_by_hook(program, contract, recoveries, out);
  Model(program, contract, out).run(recoveries, ready_orders);
}

}  // namespace lockstep::reference
