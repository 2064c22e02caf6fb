// HookModel: the state of the model of hook_model.h, and the parts of it: calls (hook_model.cc),
// what the hooks of gradients do (hook_readiness.cc), and what comes of a pass (hook_reduction.cc).
// Internal to this folder. One thread; nothing fails.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "properties/subject/torch/model/averaging.h"
#include "properties/subject/torch/model/bucket_layout.h"
#include "properties/subject/torch/model/call_sums.h"
#include "properties/subject/torch/model/finalization.h"
#include "properties/subject/torch/model/graph.h"
#include "properties/subject/torch/model/hook_model.h"
#include "properties/subject/torch/model/last_results.h"
#include "properties/subject/torch/model/parameter_memory.h"
#include "properties/subject/torch/model/rank_state.h"
#include "properties/subject/torch/model/sparse_launches.h"
#include "reference/sparse.h"

namespace lockstep::properties::torch_model {

using namespace reference;  // NOLINT: the vocabulary of programs

class HookModel {
 public:
  HookModel(const Program& program, const TorchOptions& options, const Policies& policies,
            Expected& out);
  void run(const std::vector<Recovery>& recoveries);

 private:
  void recover(const std::vector<std::uint32_t>& survivors);
  void leave_open() { knowledge_.is_modelled = false; }
  bool update_group();
  void rebuild_if_due(ExpectedStep& expected);
  void rebuild(ExpectedStep& expected);
  void prepare(ExpectedStep& expected);
  bool is_alone_at_rebuild(const Step& step, ExpectedStep& expected);
  void run_step(const Step& step, ExpectedStep& expected);
  void zero(std::uint32_t rank, ZeroGrad kind);
  void advance(const Step& step, std::uint32_t rank, ExpectedRankStep& expected);
  void run_forward(const Step& step, std::uint32_t rank, ExpectedRankStep& expected);
  void run_backward(const Step& step, std::uint32_t rank, ExpectedRankStep& expected);
  void end_calls(const Step& step, std::uint32_t rank, ExpectedRankStep& expected);
  bool run_call(const Step& step, std::uint32_t rank, ExpectedRankStep& expected);
  Error take_hook(std::uint32_t rank, const Event& event);
  Error mark_by_hook(std::uint32_t rank, std::uint32_t parameter);
  Error end_first_static(std::uint32_t rank);
  Error mark_ready(std::uint32_t rank, std::uint32_t parameter);
  void give(std::uint32_t rank, std::uint32_t parameter);
  void give_whole(std::uint32_t rank, std::uint32_t bucket);
  void allocate(std::uint32_t rank, std::uint32_t bucket);
  void give_entries(std::uint32_t rank, std::uint32_t parameter);
  void note_launch(std::uint32_t rank, std::uint32_t parameter);
  void add_sum(const Event& event, std::uint32_t rank);
  void add_entries(std::uint32_t parameter, Entries& into, const Entries& next);
  bool end_in_hook(Rank& rank, ExpectedRankStep& expected) const;
  bool finish_pass(const Step& step, ExpectedStep& expected);
  bool finish_rebuild(ExpectedStep& expected);
  void leave_loose(std::uint32_t rank);
  void end_twice(ExpectedStep& expected);
  bool blocks_others(std::uint32_t rank);
  void list_collectives(ExpectedStep& expected) const;
  void reduce(ExpectedStep& expected);
  bool is_skipped(std::uint32_t bucket) const;
  void leave_out(std::uint32_t parameter);
  void reduce_one(std::uint32_t parameter);
  void reduce_entries(std::uint32_t parameter);
  void end_reduction(std::uint32_t parameter);
  void record(std::vector<ExpectedRankStep>& ranks);

  Gradient& gradient(std::uint32_t rank, std::uint32_t parameter) {
    return gradients_[rank * program_.parameters.size() + parameter];
  }
  double* elements(std::uint32_t rank, std::uint32_t parameter) {
    return elements_.data() + rank * memory_.total + memory_.places[parameter].start;
  }
  Entries& entries(std::uint32_t rank, std::uint32_t parameter) {
    return sparse_.entries[rank * program_.parameters.size() + parameter];
  }
  double* given(std::uint32_t rank, std::uint32_t parameter) {
    return given_.data() + rank * memory_.total + memory_.places[parameter].start;
  }
  // Returns whether PyTorch counts the parameter as used on this rank when the pass ends.
  bool takes(std::uint32_t rank, std::uint32_t parameter) const {
    return ranks_[rank].takes[parameter] != 0;
  }
  bool is_dynamic() const { return program_.options.mode == Mode::kDynamic; }
  bool is_sparse(std::uint32_t parameter) const { return program_.parameters[parameter].sparse; }
  bool is_static() const { return program_.options.mode == Mode::kStatic; }
  // Whether a backward now belongs to the first pass.
  bool is_first_static(const Rank& rank) const {
    if (!policies_.first_static_pass_is_any) return is_static() && rank.forwards == 1;
    return is_static() && !rank.has_ended_first;
  }
  bool counts_hooks(const Rank& rank) const {
    if (!policies_.first_static_pass_is_any) return is_first_static(rank);
    return is_static() && rank.hooked_passes == 1;
  }
  Hook hook() const { return averaging_hook(program_.options); }
  bool has_views() const { return program_.options.views; }
  bool is_lazy() const { return torch_model::is_lazy(options_, policies_); }
  bool is_batched() const { return torch_model::is_batched(options_, policies_); }
  bool ends_by_hand() const { return torch_model::ends_by_hand(options_); }
  // Returns whether a hook of the user's ends a pass of this kind. Before the buckets are rebuilt
  // none does, as should_finalize_after_backward() asks for a call after backward then.
  bool ends_in_hook(PassKind kind) const {
    return may_end_in_hook(options_, kind) && !memory_.reduced.empty() && !layout_.may_rebuild();
  }
  std::uint32_t endings(PassKind kind) const {
    return endings_after(options_, kind, ends_in_hook(kind));
  }
  // Returns whether the rank has launched all buckets, and waits for their sums in this step. A
  // rank whose pass nobody ends does not wait.
  bool is_waiting(const Rank& rank, PassKind kind) const {
    return rank.in_step.is_complete && !rank.in_step.is_over &&
           (!ends_by_hand() || rank.in_step.is_in_hook || endings(kind) > 0);
  }
  bool is_rebuild_due(const Rank& rank) const {
    return layout_.may_rebuild() && !rank.is_unfinished && !rank.order.empty();
  }
  // Returns whether a call of the rank waits: one who ends passes by hand goes on with the calls.
  bool is_stopped(const Rank& rank) const {
    return !rank.in_step.is_over &&
           (ends_by_hand() ? rank.in_step.is_in_hook : rank.in_step.is_complete);
  }
  const std::vector<ExpectedBucket>& buckets() const { return layout_.buckets(); }
  std::vector<std::uint32_t> missing(const Rank& rank) const {
    return not_ready(rank, memory_.reduced);
  }

  struct Sparse {
    std::vector<Entries> entries;  // the gradients, by rank and parameter
    SparseLaunches launched;       // in this step
  };

  const Program& program_;
  const TorchOptions& options_;
  const Policies policies_;
  Expected& out_;
  ParameterMemory memory_;
  BucketLayout layout_;
  LastResults results_;
  Graph graph_;

  std::vector<std::uint32_t> survivors_;
  std::vector<Rank> ranks_;
  std::vector<Gradient> gradients_;
  std::vector<double> elements_;
  std::vector<double> given_;  // what is in the buckets, by rank
  CallSums sums_;
  Sparse sparse_;
  StepKnowledge knowledge_;             // of this step
  std::vector<std::uint8_t> is_raced_;  // by parameter, in this step
  bool is_counted_ = false;             // static mode: the first pass is over
};

}  // namespace lockstep::properties::torch_model
