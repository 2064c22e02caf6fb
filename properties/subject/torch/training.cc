#include "properties/subject/torch/training.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <signal.h>

#include <algorithm>
#include <c10d/FileStore.hpp>
#include <c10d/HashStore.hpp>
#include <chrono>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "properties/case/calls.h"
#include "properties/subject/torch/faults.h"
#include "properties/subject/torch/graph.h"
#include "properties/subject/torch/hosts_store.h"
#include "properties/subject/torch/model/finalization.h"
#include "properties/subject/torch/model/hook_model.h"
#include "properties/subject/torch/wrapper.h"
#include "reference/arithmetic.h"
#include "reference/model/engine.h"
#include "reference/sparse.h"

namespace lockstep::torch_subject {
namespace {

using properties::ObservedGradient;
using properties::ObservedStep;
using properties::Resume;
using properties::Roster;
using reference::PassKind;
using reference::Program;

constexpr std::size_t kMaxMessage = 400;

using StoreRef = c10::intrusive_ptr<c10d::Store>;

// Returns the store for ranks that are threads of this process: one store per name, as long as one
// of them holds it.
StoreRef store_of_process(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, c10::weak_intrusive_ptr<c10d::HashStore>> stores;  // of live cases
  const std::scoped_lock lock(mutex);
  std::erase_if(stores, [](const auto& each) { return each.second.expired(); });
  const auto known = stores.find(name);
  if (known != stores.end())
    if (auto store = known->second.lock()) return store;
  auto made = c10::make_intrusive<c10d::HashStore>();
  stores.emplace(name, c10::weak_intrusive_ptr<c10d::HashStore>(made));
  return made;
}

class Training {
 public:
  Training(const properties::RankJob& job, properties::RankObservation& observation,
           const properties::torch_model::Policies& policies, Planted planted)
      : job_(job),
        policies_(policies),
        planted_(planted),
        program_(job.c->program),
        observation_(observation),
        expectation_(job.expectation),
        end_(static_cast<std::uint32_t>(program_.steps.size())),
        faults_(job),
        builder_(program_, job.rank, model_.parameters, [this] { faults_.at_node(); }) {
    for (std::uint32_t i = 0; i < program_.parameters.size(); ++i) {
      const std::uint32_t owner = reference::owner_of(program_, i);
      if (owner != i) {
        model_.parameters.push_back(model_.parameters[owner]);
        continue;
      }
      const reference::Parameter& record = program_.parameters[i];
      at::Tensor parameter = empty_like(record, false);
      parameter.zero_();
      parameter.set_requires_grad(!record.frozen);
      model_.parameters.push_back(parameter);
      if (!reference::is_reduced(record)) continue;
      model_.reduced.push_back(parameter);
      model_.is_sparse.push_back(record.sparse);
    }
  }

  void run() {
    Roster roster;
    for (std::uint32_t r = 0; r < program_.world; ++r) roster.members.push_back(r);
    std::uint32_t step = 0;
    if (job_.joining) {  // in the place of a rank that has ended
      roster = job_.joining->resume.roster;
      step = job_.joining->resume.step;
      recoveries_ = job_.joining->recoveries;  // the last of them begins its first group
      expect_recovered();
    }
    observation_.construction = join(roster, step);
    while (observation_.construction.ok() && observation_.recovery.ok()) {
      bool is_recovering = false;
      while (step < end_ && !is_recovering) is_recovering = train_step(step++);
      // An absent rank stays until the others have noticed.
      if (is_recovering && !reference::pass_of(program_.steps[step - 1], job_.rank).absent) leave();
      Resume resume = job_.meet(!is_recovering, step);
      observation_.finished = !resume.recover;
      if (observation_.finished) break;
      step = resume.step;
      recoveries_.push_back({resume.step, resume.roster.members});
      expect_recovered();
      leave();
      for (at::Tensor& parameter : model_.parameters) parameter.mutable_grad() = at::Tensor();
      observation_.recovery = join(resume.roster, step);
    }
    leave();
  }

  faults::Fired fired() const { return faults_.fired(); }

 private:
  // Faults have recoveries of their own, after which static mode counts anew. Then other steps
  // fail, and the model may not know the results of further steps.
  void expect_recovered() {
    recovered_ = properties::torch_model::run(program_, job_.c->torch, policies_, recoveries_);
    expectation_ = &recovered_;
    end_ = properties::torch_model::modelled_steps(recovered_);
  }

  template <class Call>
  static Status caught(Call call) {
    const auto failure = [](std::string what) {
      what.resize(std::min(what.find('\n'), std::min(what.size(), kMaxMessage)));
      return Status(Code::kInternal, std::move(what));
    };
    try {
      call();
      return {};
    } catch (const c10::Error& error) {
      return failure(error.what_without_backtrace());
    } catch (const std::exception& error) {
      return failure(error.what());
    }
  }

  StoreRef store_of(const Roster& roster, const std::string& suffix, int size) const {
    const std::string name = "/torch-" + std::to_string(roster.generation) + suffix;
    if (!job_.address.empty())
      return c10::make_intrusive<HostsStore>(job_.directory, job_.rank, name + "/");
    if (job_.is_thread) return store_of_process(job_.directory + name);
    return c10::make_intrusive<c10d::FileStore>(job_.directory + name, size);
  }

  // Makes a group of the ranks of a roster; several of one roster have other names.
  c10::intrusive_ptr<RecordingGroup> group_of(const Roster& roster, const std::string& name) {
    const auto here = std::find(roster.members.begin(), roster.members.end(), job_.rank);
    const auto rank = static_cast<int>(here - roster.members.begin());
    const auto size = static_cast<int>(roster.members.size());
    return c10::make_intrusive<RecordingGroup>(
        store_of(roster, name, size), rank, size, job_.address,
        std::chrono::milliseconds(properties::gloo_timeout_ms(*job_.c)),
        [this] { faults_.at_collective(); });
  }

  // Makes the group with which the rank goes on with `step`.
  Status join(const Roster& roster, std::uint32_t step) {
    roster_ = roster;
    return caught([&] {
      faults_.at_connect(step);
      group_ = group_of(roster, "");
      if (!model_.reduced.empty())
        wrapper_.emplace(model_.reduced, model_.is_sparse, program_.options, job_.c->torch, group_,
                         [this] { faults_.at_node(); });
    });
  }

  // Peers that wait for this rank notice the loss when its connections close.
  void leave() {
    held_ = {};
    (void)caught([this] { wrapper_.reset(); });
    (void)caught([this] { group_.reset(); });
  }

  // The reducer goes on with another group of the same ranks.
  void update_group() {
    const auto group = group_of(roster_, "-updated");
    group->continue_record_of(*group_);
    wrapper_->update_group(group);
    group_ = group;
  }

  // Returns true if all ranks recover after this step, as far as this rank knows.
  bool train_step(std::uint32_t step) {
    observation_.steps.emplace_back().step = step;
    ObservedStep& observed = observation_.steps.back();
    observed.begin_us = now_us();
    faults_.begin_step(step);
    if (step != 0 && step == job_.c->torch.update_process_group && wrapper_) {
      observed.failed_call = properties::Call::kForwardCall;
      observed.status = caught([this] { update_group(); });
    }
    if (observed.status.ok()) run_step(program_.steps[step], observed);
    faults_.end_step();
    if (!observed.status.ok()) observed.collectives = group_->take();
    observed.end_us = now_us();
    return !observed.status.ok() || expectation_->steps[step].any_error;
  }

  // The outputs that the rank holds until its next step has ended.
  struct Held {
    const reference::Step* step = nullptr;  // null: none
    std::vector<at::Tensor> outputs;
  };

  void run_step(const reference::Step& step, ObservedStep& observed) {
    const reference::RankPass& pass = reference::pass_of(step, job_.rank);
    const PassKind kind = kind_of(step, pass);
    if (!pass.skip && kind == PassKind::kNoGrad) {
      zero_gradients(step.zero_grad);
      held_ = {};
    }
    remember_storages();
    if (kind != PassKind::kNoGrad) {
      std::vector<at::Tensor> outputs;
      run_calls(step, pass, outputs, observed);
      held_ = pass.hold_outputs ? Held{&step, std::move(outputs)} : Held();
      if (!observed.status.ok()) return;
      observed.failed_call = kNone;
    }
    snapshot(observed);
  }

  void zero_gradients(reference::ZeroGrad kind) {
    for (at::Tensor& parameter : model_.parameters) {
      at::Tensor& gradient = parameter.mutable_grad();
      if (kind == reference::ZeroGrad::kUndefine) gradient = at::Tensor();
      if (kind == reference::ZeroGrad::kFill && gradient.defined()) gradient.zero_();
    }
  }

  void run_calls(const reference::Step& step, const reference::RankPass& pass,
                 std::vector<at::Tensor>& outputs, ObservedStep& observed) {
    using Kind = properties::Call::Kind;
    const PassKind kind = kind_of(step, pass);
    for (const properties::Call& call : properties::calls_of(program_.options, kind, pass)) {
      if (call.kind == Kind::kCheckComplete) continue;  // PyTorch has no such call
      observed.failed_call = call.place;
      observed.status = caught([&] { make_call(step, pass, call, outputs); });
      if (call.kind == Kind::kBackward && planted_ == Planted::kSwallowedErrors)
        observed.status = {};
      if (!observed.status.ok()) return;
    }
    const bool has_backwards = reference::kept_outputs(pass) > 0;
    if (wrapper_ && has_backwards) end_by_hand(kind, reference::call_count(pass), observed);
  }

  void make_call(const reference::Step& step, const reference::RankPass& pass,
                 const properties::Call& call, std::vector<at::Tensor>& outputs) {
    using Kind = properties::Call::Kind;
    const PassKind kind = kind_of(step, pass);
    const std::uint32_t number = call.number;
    if (call.kind == Kind::kZeroGrad) {
      zero_gradients(step.zero_grad);
      remember_storages();
    }
    if (call.kind == Kind::kForward) {
      const reference::Forward& forward = pass.forwards[number];
      run_forward(step.key, forward, kind == PassKind::kSynced && !forward.local, outputs);
    }
    if (call.kind == Kind::kEvaluate) {
      const at::NoGradGuard guard;  // DistributedDataParallel does not call its reducer then
      (void)builder_.build(step.key, pass.forwards[0].nodes, pass.forwards[0].outputs);
    }
    if (call.kind == Kind::kDrop) {
      const std::vector<bool> is_dropped = reference::dropped_outputs(pass, number);
      for (std::size_t i = 0; i < outputs.size(); ++i)
        if (is_dropped[i]) outputs[i] = at::Tensor();
    }
    if (call.kind != Kind::kBackward) return;
    using properties::torch_model::may_end_in_hook;
    const bool are_all_run = reference::backward_of(pass, number).forwards == 0;
    if (are_all_run && wrapper_ && may_end_in_hook(job_.c->torch, kind))
      wrapper_->end_pass_in_hook();
    if (reference::backward_of(pass, number).held)
      run_held_backward(pass, number);
    else
      run_backward(pass, number, outputs);
  }

  // From outputs of the step before, if the rank holds any.
  void run_held_backward(const reference::RankPass& pass, std::uint32_t call) {
    if (held_.step == nullptr) return;
    const reference::RankPass& before = reference::pass_of(*held_.step, job_.rank);
    const std::vector<std::uint32_t> numbers = reference::held_roots(
        kind_of(*held_.step, before), before, reference::backward_of(pass, call));
    std::vector<at::Tensor> roots;
    for (const std::uint32_t number : numbers) roots.push_back(held_.outputs[number]);
    const bool is_last = call + 1 == reference::call_count(pass);
    if (!roots.empty()) GraphBuilder::backward(roots, 1, !is_last);
  }

  // Calls what ends a pass, as often as the user does. `call`: how many backwards there were.
  void end_by_hand(PassKind kind, std::uint32_t call, ObservedStep& observed) {
    const std::uint32_t endings =
        properties::torch_model::endings_after(job_.c->torch, kind, wrapper_->is_ended_in_hook());
    wrapper_->leave_hook();
    if (planted_ == Planted::kSkippedEndings) return;
    for (std::uint32_t end = 0; end < endings && observed.status.ok(); ++end) {
      observed.failed_call = static_cast<std::int32_t>(call + end);
      observed.status = caught([this] { wrapper_->end_pass(); });
    }
  }

  void run_forward(std::uint32_t step_key, const reference::Forward& forward, bool is_synced,
                   std::vector<at::Tensor>& outputs) {
    if (wrapper_) wrapper_->begin_forward(is_synced);
    std::vector<at::Tensor> made = builder_.build(step_key, forward.nodes, forward.outputs);
    if (wrapper_) made = wrapper_->end_forward(is_synced, std::move(made));
    if (!forward.discard) std::move(made.begin(), made.end(), std::back_inserter(outputs));
  }

  static void run_backward(const reference::RankPass& pass, std::uint32_t call,
                           std::vector<at::Tensor>& outputs) {
    const bool is_last = call + 1 == reference::call_count(pass);
    std::vector<at::Tensor> roots;
    for (const std::uint32_t root : reference::roots_of(pass, call)) roots.push_back(outputs[root]);
    if (is_last && !pass.keep_outputs) outputs.clear();
    GraphBuilder::backward(roots, 1, !is_last);
  }

  void remember_storages() {
    storages_.clear();
    for (const at::Tensor& parameter : model_.parameters)
      storages_.push_back(parameter.grad().defined() ? storage_of(parameter.grad())
                                                     : at::Storage());
  }

  // Returns the storage of a gradient; for a sparse gradient, the storage of its values.
  static at::Storage storage_of(const at::Tensor& gradient) {
    return gradient.is_sparse() ? gradient._values().storage() : gradient.storage();
  }

  static bool same_as(const at::Storage& one, const at::Storage& other) {
    return one && one.unsafeGetStorageImpl() == other.unsafeGetStorageImpl();
  }

  void snapshot(ObservedStep& observed) {
    observed.gradients.resize(model_.parameters.size());
    for (std::size_t i = 0; i < model_.parameters.size(); ++i) {
      ObservedGradient& seen = observed.gradients[i];
      const at::Tensor& gradient = model_.parameters[i].grad();
      seen.defined = gradient.defined();
      if (!seen.defined) continue;
      if (gradient.is_sparse()) {
        append_rows(gradient, i, seen);
        continue;
      }
      seen.same_storage = same_as(storages_[i], gradient.storage());
      seen.byte_in_storage =
          static_cast<std::uint64_t>(gradient.storage_offset()) * gradient.element_size();
      while (!model_.parameters[seen.shares_with].grad().defined() ||
             model_.parameters[seen.shares_with].grad().is_sparse() ||
             !same_as(model_.parameters[seen.shares_with].grad().storage(), gradient.storage()))
        ++seen.shares_with;
      seen.offset = observation_.bits.size();
      append_bits(gradient.contiguous());
    }
    storages_.clear();
    observed.collectives = group_->take();
  }

  // Appends the rows in the format of reference::gradient_words(). If the contract promises nothing
  // about a gradient, a reduction that nobody waits for may write to it at this moment.
  void append_rows(const at::Tensor& gradient, std::size_t parameter, ObservedGradient& seen) {
    seen.shares_with = static_cast<std::uint32_t>(parameter);
    seen.offset = observation_.bits.size();
    const reference::Parameter& record = program_.parameters[parameter];
    const auto& expected = expectation_->steps[observation_.steps.back().step];
    if (!expected.ranks[job_.rank].gradients[parameter].known) {
      observation_.bits.resize(seen.offset + reference::gradient_words(record));
      return;
    }
    seen.same_storage = same_as(storages_[parameter], storage_of(gradient));
    reference::Entries entries;
    const at::Tensor rows = gradient._indices().contiguous();
    const at::Tensor values = gradient._values().to(at::kDouble).contiguous();
    const auto* row = rows.data_ptr<std::int64_t>();
    const auto* value = values.data_ptr<double>();
    entries.rows.assign(row, row + rows.numel());
    entries.values.assign(value, value + values.numel());
    (void)reference::append_bits(record, entries, observation_.bits);
  }

  // Appends the elements in row-major order.
  void append_bits(const at::Tensor& gradient) {
    const auto count = static_cast<std::size_t>(gradient.numel());
    const auto append = [&](const auto* values) {
      observation_.bits.insert(observation_.bits.end(), values, values + count);
    };
    if (gradient.element_size() == 8)
      return append(static_cast<const std::uint64_t*>(gradient.data_ptr()));
    if (gradient.element_size() == 4)
      return append(static_cast<const std::uint32_t*>(gradient.data_ptr()));
    return append(static_cast<const std::uint16_t*>(gradient.data_ptr()));
  }

  struct Model {
    std::vector<at::Tensor> parameters;  // per parameter of the program
    std::vector<at::Tensor> reduced;
    std::vector<bool> is_sparse;  // of those that are reduced
  };

  const properties::RankJob& job_;
  const properties::torch_model::Policies& policies_;
  const Planted planted_;
  const Program& program_;
  properties::RankObservation& observation_;
  const reference::Expectation* expectation_;
  std::uint32_t end_;  // the end of the steps for which the model makes a promise
  std::vector<reference::Recovery> recoveries_;
  properties::Expected recovered_;
  RankFaults faults_;
  Model model_;
  GraphBuilder builder_;
  Roster roster_;  // of the group
  c10::intrusive_ptr<RecordingGroup> group_;
  std::optional<Wrapper> wrapper_;
  std::vector<at::Storage> storages_;
  Held held_;
};

}  // namespace

void prepare_process() {
  ::signal(SIGPIPE, SIG_IGN);  // as the Python interpreter does: Gloo writes to peers that are gone
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
}

void train(const properties::RankJob& job, properties::RankObservation& observation,
           faults::Fired& fired, const properties::torch_model::Policies& policies,
           Planted planted) {
  {
    // The setting is counted by thread, and repairs a pool of the process that a fork has broken.
    static std::mutex mutex;
    const std::scoped_lock lock(mutex);
    at::set_num_threads(1);
    // The handler is the thread's own from 2.0 on, and the process's before.
    static Silence silence;
    warnings::set_warning_handler(&silence);
  }
  Training training(job, observation, policies, planted);
  training.run();
  fired = training.fired();
}

}  // namespace lockstep::torch_subject
