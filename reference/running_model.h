// Model: one run of a program by the contract, step by step. It is the inside of model.h, in three
// parts: model.cc (what a step is), model_backward.cc (one rank's part of it), model_reduce.cc
// (that of all ranks).
//
// One thread; nothing fails.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "reference/graph.h"
#include "reference/model.h"
#include "reference/order.h"
#include "reference/parameter_memory.h"
#include "reference/power_sgd.h"
#include "reference/sparse.h"
#include "reference/state.h"

namespace lockstep::reference {

class Model {
 public:
  // Of the ranks of one group.
  Model(const Program& program, const Contract& contract, std::uint32_t group, Expectation& out);
  // In this order: recover() with all ranks, each step in turn, recover() in between, end().
  void recover(const std::vector<std::uint32_t>& survivors);
  const ExpectedStep& run_step(std::uint32_t index, const std::vector<ReadyOrder>& ready_orders);
  void end_join();  // S2: when no rank has inputs any more
  void renew();     // other reducers of the same parameters and ranks
  void end();

 private:
  static constexpr std::uint32_t kNever = ~std::uint32_t{0};  // of hooks

  // The gradient of one parameter on one rank; its elements are in Model::elements_.
  struct Gradient {
    bool defined = false;
    bool used = false;       // G6, since it was last zeroed or reduced
    bool touched = false;    // since the step's first backward
    bool reduced = false;    // in this step
    bool recorded = false;   // its bits are in Expectation::bits, at `offset`
    bool in_bucket = false;  // B7
    bool misplaced = false;  // it was swapped out of its bucket: it may be moved
    bool requires_grad = false;
    bool loose = false;  // added to in an order that time decides: the bits are not known
    std::uint64_t offset = 0;
  };

  void place_in_buckets();
  std::vector<OrderRun> order_of(std::uint64_t count, DType wire) const;
  void order_additions();
  void rebuild(std::uint32_t step, const std::vector<ReadyOrder>& ready_orders);
  const std::vector<ExpectedBucket>& buckets() const {
    return layout_ == 0 ? out_.buckets : out_.rebuilt[layout_ - 1];
  }
  void choose_active(std::uint32_t step);
  void announce(std::vector<ExpectedCollective>& collectives, std::uint32_t call);
  void end_early(ExpectedStep& expected) const;
  void start_over();
  void copy_to_replicas(const Step& step);
  void run_forwards(const Step& step, std::vector<ExpectedCollective>& collectives);
  void rebuild_if_due(std::uint32_t step, const std::vector<ReadyOrder>& ready_orders,
                      std::vector<ExpectedCollective>& collectives);
  void prepare(std::vector<ExpectedRankStep>& ranks) const;
  void run_step(const Step& step, ExpectedStep& expected);

  // One rank's part of a step, up to the reduction.
  void zero(std::uint32_t rank, ZeroGrad kind);
  void set_others(std::uint32_t rank, ZeroGrad kind);
  void train(const Step& step, std::uint32_t rank, ExpectedRankStep& expected);
  std::uint32_t hooks_due(std::uint32_t rank, std::uint32_t parameter) const;
  void find_elsewhere(const RankPass& pass, std::uint32_t calls);
  bool find_ready_twice(const std::vector<Event>& events, std::uint32_t rank,
                        std::vector<std::uint32_t>& found);
  void fail_as_incomplete(std::uint32_t rank, std::uint32_t call, ExpectedRankStep& expected);
  bool find_new_use(std::uint32_t rank, std::vector<std::uint32_t>& found);
  std::vector<std::uint32_t> missing(std::uint32_t rank) const;
  bool find_requiring(const std::vector<Event>& events, std::uint32_t rank, bool begins_pass,
                      std::vector<std::uint32_t>& found);
  bool blocks_others(std::uint32_t rank, const ExpectedRankStep& expected) const;
  void accumulate(std::uint32_t rank, std::uint32_t step_key, const std::vector<Event>& events);
  void accumulate_entries(const Event& event, std::uint32_t rank, std::uint32_t step_key);
  bool adds_exactly(std::uint32_t parameter, const double* values) const;
  static bool adds_exactly(DType dtype, std::span<const double> values);
  static void set_added(Gradient& target);
  void add_sum(std::uint32_t parameter, std::uint32_t rank, const double* sums);

  // All ranks.
  void decide_outcomes(ExpectedStep& expected);
  void list_collectives(ExpectedStep& expected);
  void reduce();
  void reduce_one(std::uint32_t parameter);
  void fold(std::uint32_t rank, std::uint32_t parameter, double* sum);
  Rows rows_of(std::uint32_t rank, std::uint32_t parameter);
  std::uint64_t most_rows(const ExpectedBucket& bucket);
  void reduce_sparse(std::uint32_t parameter);
  bool is_power_sgd(const ExpectedBucket& bucket) const;
  void reduce_by_power_sgd(const ExpectedBucket& bucket);
  void set_reduced(std::uint32_t parameter, bool is_loose);
  void record(std::vector<ExpectedRankStep>& ranks);
  std::uint64_t record_bits(std::uint32_t rank, std::uint32_t parameter);

  Gradient& gradient(std::uint32_t rank, std::uint32_t parameter) {
    return gradients_[rank * program_.parameters.size() + parameter];
  }
  // P15: what the gradient of `part` is summed with before it leaves the process; and whether that
  // holds of one of those that are.
  std::uint32_t original(std::uint32_t part) const {
    return part - program_.parameters[part].copy_of;
  }
  template <class Is>
  bool any_part(std::uint32_t parameter, const Is& is) const {
    return is(parameter) || std::any_of(copies_[parameter].begin(), copies_[parameter].end(), is);
  }
  bool is_used(std::uint32_t rank, std::uint32_t parameter) {
    return any_part(parameter, [&](std::uint32_t part) { return gradient(rank, part).used; });
  }
  bool is_defined(std::uint32_t rank, std::uint32_t parameter) {
    return any_part(parameter, [&](std::uint32_t part) { return gradient(rank, part).defined; });
  }
  bool is_loose(std::uint32_t rank, std::uint32_t parameter) {
    return any_part(parameter, [&](std::uint32_t part) { return gradient(rank, part).loose; });
  }
  bool is_sparse(std::uint32_t parameter) const { return program_.parameters[parameter].sparse; }
  Entries& entries(std::uint32_t rank, std::uint32_t parameter) {
    return entries_[rank * program_.parameters.size() + parameter];
  }
  double* elements(std::uint32_t rank, std::uint32_t parameter) {
    return elements_.data() + rank * memory_.total + memory_.places[parameter].start;
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
  bool counts(std::uint32_t rank) const { return is_static() && has_counted_[rank] == 0; }
  bool is_static() const { return program_.options.mode == Mode::kStatic; }
  bool is_reduced(std::uint32_t parameter) const {
    return is_in_use_[parameter] || program_.options.mode == Mode::kPlain;
  }

  const Program& program_;
  const Contract contract_;
  const std::uint32_t group_;
  Expectation& out_;
  ParameterMemory memory_;
  Graph graph_;

  std::vector<std::uint32_t> survivors_;
  std::vector<std::uint32_t> active_;          // those of them that have inputs for the step (S2)
  std::uint32_t root_ = 0;                     // the first that trained in the last event
  std::vector<std::vector<OrderRun>> orders_;  // by bucket, for this many survivors
  std::vector<Gradient> gradients_;
  std::vector<double> elements_;
  std::vector<std::vector<std::uint32_t>> copies_;  // P15: by parameter
  std::vector<Entries> entries_;  // S1: by rank and parameter; sparse ones have no elements
  // Sums of one backward call, by depth of nested calls; a depth is allocated when first used.
  std::array<std::vector<double>, kMaxDepth + 1> sums_;
  std::array<std::vector<std::uint8_t>, kMaxDepth + 1> sum_requires_grad_;  // by parameter
  std::array<std::vector<Entries>, kMaxDepth + 1> sparse_sums_;             // by parameter
  std::vector<double> contributions_;  // to one parameter, scaled, by position in the group

  PowerSgd power_sgd_;
  std::vector<std::uint8_t> is_power_loose_;  // by parameter: what it keeps is not known

  // B2: 0, or 1 + the index into Expectation::rebuilt.
  std::uint32_t layout_ = 0;
  bool is_rebuilding_ = false;  // in this step
  bool is_recorded_ = false;    // the group has completed a synced pass
  States states_;               // S3
  bool is_window_open_ = false;
  std::vector<std::uint8_t> is_copied_;  // P15: by rank; other replicas have had its buffers
  // P11, kStatic: what the group's first synced pass has shown.
  bool is_counted_ = false;
  std::vector<std::uint8_t> has_counted_;      // by rank: it has trained in such a pass of its own
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
  std::vector<std::uint8_t> is_requiring_;   // see find_requiring()
  std::vector<std::uint8_t> is_left_out_;    // ready twice: not accumulated, the call fails anyway
  // Of the step.
  bool ends_early_ = false;               // S2: raised at an announcement,
  std::uint32_t early_call_ = 0;          // in this call
  std::vector<std::uint8_t> is_unknown_;  // by parameter
  std::uint32_t blocking_ranks_ = 0;      // without whose buckets no other rank can end its pass
};

}  // namespace lockstep::reference
