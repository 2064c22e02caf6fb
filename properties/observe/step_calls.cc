#include "properties/observe/step_calls.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "properties/observe/recompute_node.h"
#include "properties/observe/zero_gradients.h"
#include "reducer/base/check.h"
#include "reference/model/engine.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

namespace {

using properties::Call;
using properties::ObservedStep;
using reference::PassKind;

// Whether a reducer that refuses work must refuse this call.
bool is_of_reducers(const reference::Step& step, const reference::RankPass& pass,
                    const Call& call) {
  if (call.kind == Call::Kind::kSyncGradients) return true;
  return call.kind == Call::Kind::kForward && step.kind != PassKind::kNoGrad &&
         !pass.forwards[call.number].nodes.empty();
}

}  // namespace

StepCalls::StepCalls(TrainingRank& rank, Device& host, LaneState& state, StepRecord& record,
                     TrainingChecks& checks, UserAbort& user)
    : rank_(rank),
      state_(state),
      record_(record),
      checks_(checks),
      user_(user),
      builder_(rank.program, rank.environment, rank.engine, host, rank.parameters) {
  Result<Tensor> one = builder_.scalar(1.0);
  LOCKSTEP_CHECK(one.has_value());
  one_ = std::move(*one);
}

void StepCalls::run(const reference::Step& step, ObservedStep& observed) {
  const reference::RankPass& pass = reference::pass_of(step, rank_.environment.rank());
  if (const PassKind kind = kind_of(step, pass); kind != step.kind) {  // the rank is absent
    reference::Step own = step;
    own.kind = kind;
    return run(own, observed);
  }
  record_.begin_step();
  checks_.begin_step();
  if (step.kind == PassKind::kNoGrad && pass.skip) {
    record_.remember_storages();
    record_.snapshot(observed, state_);
    return;
  }
  observed.failed_call = Call::kForwardCall;
  builder_.begin_step(step.key);
  Outputs outputs;
  if (pass.recompute != reference::Recompute::kNone) {
    observed.status = recompute(step, pass, observed);
  } else {
    run_calls(step, pass, outputs, observed);
  }
  hold(step.kind, pass, std::move(outputs));
  if (!observed.status.ok()) return;
  observed.failed_call = kNone;
  if (step.kind == PassKind::kSynced && keeps_a_forward(pass)) state_.train(step.key);
  record_.snapshot(observed, state_);
  // Without outputs that live on, a pass leaves nothing but gradients.
  checks_.end_step(record_,
                   step.kind == PassKind::kSynced && keeps_a_forward(pass) && !pass.hold_outputs);
}

void StepCalls::hold(PassKind kind, const reference::RankPass& pass, Outputs outputs) {
  held_ = {};
  let_go_of_roots();
  if (!pass.hold_outputs) return;
  for (const bool is_synced : {false, true})
    for (const std::uint32_t output : reference::held_outputs(kind, pass, is_synced))
      if (output < outputs.kept.size())
        held_roots_[is_synced ? 1 : 0].push_back(outputs.kept[output]);
  held_ = std::move(outputs);
}

void StepCalls::run_calls(const reference::Step& step, const reference::RankPass& pass,
                          Outputs& outputs, ObservedStep& observed) {
  record_.remember_storages();
  bool has_asked = false;
  for (const Call& call : properties::calls_of(rank_.program.options, step.kind, pass)) {
    observed.failed_call = call.place;
    const bool are_all_run = call.kind == Call::Kind::kBackward &&
                             reference::backward_of(pass, call.number).forwards == 0;
    if (are_all_run && !std::exchange(has_asked, true)) checks_.ask_for_diagnosis();
    visit_between(observed);
    if (observed.is_destroyed) checks_.try_without_reducer(step, pass, outputs.kept, one_);
    if (!observed.status.ok()) return;
    const bool is_refused = user_.has_aborted_reducers() && is_of_reducers(step, pass, call);
    observed.status = make_call(step, pass, call, outputs);
    if (!observed.status.ok()) return;
    if (is_refused) rank_.note_wrong("a reducer that its user has aborted does further work");
  }
}

bool StepCalls::visit_between(ObservedStep& observed) {
  user_.visit(rank_.subject);
  if (user_.is_to_destroy()) {
    rank_.environment.begin_step(static_cast<std::uint32_t>(rank_.program.steps.size()));
    observed.status = user_.destroy_reducers(*rank_.subject, rank_.observation.wrong_answer);
    observed.is_destroyed = true;
  }
  return user_.has_aborted();
}

Status StepCalls::make_call(const reference::Step& step, const reference::RankPass& pass,
                            const Call& call, Outputs& outputs) {
  switch (call.kind) {
    case Call::Kind::kZeroGrad:
      LOCKSTEP_RETURN_IF_ERROR(zero_gradients(rank_.program, rank_.parameters, step.zero_grad));
      record_.remember_storages();
      return {};
    case Call::Kind::kForward:
      return run_forward(step, pass, call.number, outputs);
    case Call::Kind::kSyncGradients:
      return sync_gradients(outputs);
    case Call::Kind::kEvaluate:
      return evaluate(pass.forwards.front());
    case Call::Kind::kOptimizerStep:
      state_.train(step.key);
      return {};
    case Call::Kind::kDrop:
      drop(reference::dropped_outputs(pass, call.number), outputs.kept);
      return {};
    case Call::Kind::kBackward:
      return run_backward(pass, call.number, outputs);
    case Call::Kind::kCheckComplete:
      return rank_.subject->check_complete();
  }
  return {};
}

Status StepCalls::evaluate(const reference::Forward& forward) {
  std::vector<Edge> made;
  const auto module = [&](std::vector<Edge>& out) {
    out = builder_.build(forward.nodes, forward.outputs);
    return Status();
  };
  return rank_.subject->forward(PassKind::kNoGrad, module, made);
}

Status StepCalls::run_forward(const reference::Step& step, const reference::RankPass& pass,
                              std::uint32_t f, Outputs& outputs) {
  const reference::Forward& forward = pass.forwards[f];
  std::vector<Edge> made;
  std::int64_t built_ns = 0;
  const auto module = [&](std::vector<Edge>& out) {
    record_.watch().module_begins();
    if (step.kind != PassKind::kNoGrad) state_.run_forward(step.key, f);
    user_.visit(rank_.subject);
    out = builder_.build(forward.nodes, forward.outputs);
    out.resize(out.size() + forward.constants);
    built_ns = now_ns();
    return Status();
  };
  const PassKind kind = forward.local ? PassKind::kNoSync : step.kind;
  LOCKSTEP_RETURN_IF_ERROR(rank_.subject->forward(kind, module, made));
  record_.note_forward(kind, made, built_ns);
  if (forward.discard || step.kind == PassKind::kNoGrad) return {};
  move_last(made, forward.constants, outputs.constants);
  std::move(made.begin(), made.end(), std::back_inserter(outputs.kept));
  return {};
}

Status StepCalls::sync_gradients(Outputs& outputs) {
  std::vector<Edge>& all = outputs.kept;
  const std::size_t count = outputs.constants.size();
  move_last(outputs.constants, count, all);
  const std::int64_t begun_ns = now_ns();
  Status status = rank_.subject->sync_gradients(all);
  if (!all.empty()) record_.note_sync(begun_ns);
  record_.watch().module_begins();
  if (status.ok() && !all.empty()) record_.watch().forward_returned(rank_.subject->bucket_count());
  if (status.ok()) move_last(all, count, outputs.constants);
  return status;
}

// Runs the step in a checkpoint around the whole model, or in two.
Status StepCalls::recompute(const reference::Step& step, const reference::RankPass& pass,
                            ObservedStep& observed) {
  LOCKSTEP_RETURN_IF_ERROR(zero_gradients(rank_.program, rank_.parameters, step.zero_grad));
  record_.remember_storages();
  const reference::Forward& forward = pass.forwards.front();
  std::vector<Edge> outputs;
  const auto build = [&](std::vector<Edge>& out) {
    out = builder_.build(forward.nodes, forward.outputs);
    out.resize(out.size() + forward.constants);
    return Status();
  };
  LOCKSTEP_RETURN_IF_ERROR(rank_.subject->forward(PassKind::kNoGrad, build, outputs));
  observed.failed_call = 0;
  std::uint32_t forwards = 0;
  const auto run = [&](const BackwardContext& context) -> Status {
    std::vector<Edge> made;
    std::int64_t built_ns = 0;
    const auto module = [&](std::vector<Edge>& out) {
      record_.watch().module_begins();
      state_.run_forward(step.key, forwards);
      Status status = build(out);
      built_ns = now_ns();
      return status;
    };
    Status status = rank_.subject->forward(step.kind, module, made);
    if (status.ok()) record_.note_forward(step.kind, made, built_ns);
    const bool is_second = forwards++ > 0;
    const bool is_refused = status.code() == Code::kInvalidArgument;
    if (is_second && is_refused && pass.recompute == reference::Recompute::kTwice) return {};
    LOCKSTEP_RETURN_IF_ERROR(std::move(status));
    made.resize(made.size() - forward.constants);
    const std::vector<Edge> roots = choose_roots(pass, 0, made);
    made.clear();
    return context.engine.backward_nested(context, roots, std::vector<Tensor>(roots.size(), one_),
                                          false);
  };
  std::vector<Edge> next;
  if (pass.recompute != reference::Recompute::kOnce)
    next.push_back({Ref<Node>(new RecomputeNode(rank_.engine, {}, run)), 0});
  const Edge root{Ref<Node>(new RecomputeNode(rank_.engine, std::move(next), run)), 0};
  const std::int64_t begun_ns = now_ns();
  Status status = rank_.engine.backward({&root, 1}, {&one_, 1}, false);
  record_.note_backward(begun_ns, now_ns());
  return status;
}

Status StepCalls::run_backward(const reference::RankPass& pass, std::uint32_t call,
                               Outputs& outputs) {
  const bool is_last = call + 1 == reference::call_count(pass);
  const reference::Backward& backward = reference::backward_of(pass, call);
  const std::vector<Edge>& held = held_roots_[backward.held_synced ? 1 : 0];
  std::vector<Edge> roots = choose_roots(pass, call, backward.held ? held : outputs.kept);
  if (backward.with_constants && !roots.empty())
    roots.insert(roots.begin(), outputs.constants.begin(), outputs.constants.end());
  const std::vector<Tensor> gradients(roots.size(), one_);
  if (is_last && !pass.keep_outputs) outputs = {};
  const bool is_synced = reference::is_synced_call(pass, call);
  record_.recorder().pause(!is_synced);
  if (roots.empty()) return {};
  const std::int64_t begun_ns = now_ns();
  Status status = rank_.engine.backward(roots, gradients, !is_last);
  if (is_synced) record_.note_backward(begun_ns, now_ns());
  if (status.ok()) record_.watch().backward_returned(is_last);
  if (status.ok() && is_synced && !is_last) checks_.note_open_pass(record_);
  return status;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
