#include "properties/subject/torch/wrapper.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <limits>
#include <utility>

#include "properties/subject/torch/model/finalization.h"

namespace lockstep::torch_subject {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Undefined gradients stay undefined. When a backward reaches it, it calls `at_begin` if that is
// set.
class Sink final : public Node {
 public:
  explicit Sink(std::function<void()> at_begin) : at_begin_(std::move(at_begin)) {}
  variable_list apply(variable_list&& gradients) override {
    if (at_begin_) at_begin_();
    return std::move(gradients);
  }

 private:
  const std::function<void()> at_begin_;
};

std::vector<at::Tensor> pass_through_sink(const std::vector<at::Tensor>& outputs,
                                          std::function<void()> at_begin) {
  const NodeHandle sink = make_node<Sink>(std::move(at_begin));
  std::vector<at::Tensor> passed;
  torch::autograd::edge_list edges;
  for (const at::Tensor& output : outputs) {
    edges.push_back(torch::autograd::impl::gradient_edge(output));
    const std::uint32_t slot = sink->add_input_metadata(output);
    passed.push_back(output.detach());
    torch::autograd::impl::set_gradient_edge(passed.back(), {sink, slot});
  }
  sink->set_next_edges(std::move(edges));
  return passed;
}

// Averages, and leaves the result in other storage than the bucket's (Hook::kElsewhere).
class UserHook final : public c10d::CommHookInterface {
 public:
  UserHook(std::shared_ptr<c10::intrusive_ptr<RecordingGroup>> group, std::function<void()> visit)
      : group_(std::move(group)), visit_(std::move(visit)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    visit_();
    std::vector<at::Tensor> sums = {bucket.getBuffer().clone()};
    sums[0].div_((*group_)->getSize());
    const auto sum = (*group_)->allreduce(sums, c10d::AllreduceOptions())->getFuture();
    return sum->then(
        [visit = visit_](c10::ivalue::Future& done) {
          if (done.hasError()) std::rethrow_exception(done.exception_ptr());
          visit();
          return done.value();
        },
        sum->elementType());
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    return result.isTensorList() ? result.toTensorVector()[0] : result.toTensor();
  }

 private:
  const std::shared_ptr<c10::intrusive_ptr<RecordingGroup>> group_;
  const std::function<void()> visit_;
};

c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> group_options(
    const std::string& address, std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(
      address.empty() ? std::string("127.0.0.1") : address));
  options->threads = 2;
  return options;
}

lockstep::DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return lockstep::DType::kFloat64;
    case at::kHalf:
      return lockstep::DType::kFloat16;
    default:
      return lockstep::DType::kFloat32;
  }
}

}  // namespace

std::uint64_t now_us() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(time).count());
}

RecordingGroup::RecordingGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                               const std::string& address, std::chrono::milliseconds timeout,
                               std::function<void()> at_collective)
    : ProcessGroupGloo(store, rank, size, group_options(address, timeout)),
      rendezvous_(store),
      at_collective_(std::move(at_collective)) {}

c10::intrusive_ptr<c10d::Work> RecordingGroup::allreduce(std::vector<at::Tensor>& tensors,
                                                         const c10d::AllreduceOptions& options) {
  using Op = properties::ObservedCollective::Op;
  at_collective_();
  const bool is_usage = tensors[0].scalar_type() == at::kInt;
  note(is_usage ? Op::kAllReduceUsage : Op::kAllReduceBucket, tensors[0]);
  return ProcessGroupGloo::allreduce(tensors, options);
}

c10::intrusive_ptr<c10d::Work> RecordingGroup::broadcast(std::vector<at::Tensor>& tensors,
                                                         const c10d::BroadcastOptions& options) {
  at_collective_();
  note(properties::ObservedCollective::Op::kBroadcastOrder, tensors[0]);
  return ProcessGroupGloo::broadcast(tensors, options);
}

c10::intrusive_ptr<c10d::ProcessGroup> RecordingGroup::process_group() {
  return process_group_of(c10::intrusive_ptr<RecordingGroup>::reclaim_copy(this), rendezvous_);
}

void RecordingGroup::note(properties::ObservedCollective::Op op, const at::Tensor& tensor) {
  using Op = properties::ObservedCollective::Op;
  properties::ObservedCollective& each = record_->started.emplace_back();
  each.op = op;
  each.launched_us = now_us();
  each.count = static_cast<std::uint64_t>(tensor.numel());
  each.dtype = dtype_of(tensor);
  each.sequence = record_->sequence++;
  if (op == Op::kAllReduceBucket)
    each.bucket = static_cast<std::int32_t>(
        std::count_if(record_->started.begin(), record_->started.end() - 1,
                      [](const auto& other) { return other.op == Op::kAllReduceBucket; }));
}

std::vector<properties::ObservedCollective> RecordingGroup::take() {
  for (properties::ObservedCollective& each : record_->started) each.completed_us = now_us();
  return std::exchange(record_->started, {});
}

Wrapper::Wrapper(std::vector<at::Tensor> parameters, std::vector<bool> is_sparse,
                 const reference::Replicated& options, const properties::TorchOptions& own_options,
                 const c10::intrusive_ptr<RecordingGroup>& group, std::function<void()> visit_hook)
    : group_(std::make_shared<c10::intrusive_ptr<RecordingGroup>>(group)),
      is_dynamic_(options.mode == reference::Mode::kDynamic),
      is_static_(options.mode == reference::Mode::kStatic),
      is_delay_queued_(std::make_shared<bool>(false)) {
  const c10::intrusive_ptr<c10d::ProcessGroup> process_group = group->process_group();
  c10d::verify_params_across_processes(process_group, parameters, {});
  std::vector<std::size_t> limits = {std::numeric_limits<std::size_t>::max() / 2};
  const std::vector<std::uint64_t> asked = reference::bucket_limits(options);
  const bool has_list = options.last_bucket_bytes != 0;
  if (is_dynamic_ || has_list) limits.assign(asked.begin(), asked.end());
  auto [buckets, per_bucket_limits] =
      c10d::compute_bucket_assignment_by_size(parameters, limits, is_sparse);
  std::reverse(buckets.begin(), buckets.end());
  std::reverse(per_bucket_limits.begin(), per_bucket_limits.end());
  std::vector<std::int64_t> limit_list;
  if (has_list) limit_list.assign(asked.begin(), asked.end());
  const at::Tensor first = parameters.front();
  reducer_ = make_reducer({std::move(parameters), std::move(buckets), std::move(per_bucket_limits),
                           process_group, std::move(is_sparse),
                           static_cast<std::int64_t>(options.bucket_bytes), is_dynamic_,
                           options.views, static_cast<std::int64_t>(options.first_bucket_bytes),
                           own_options.skip_all_reduce_unused_params, std::move(limit_list),
                           own_options.batched_grad_copy, own_options.lazy_bucket_allocation});
  if (properties::torch_model::ends_by_hand(own_options)) {
    require_manual_finalization(*reducer_);
    add_ending_hook(first);
  }
  logger_ = std::make_shared<c10d::Logger>(reducer_);
  reducer_->set_logger(logger_);
  if (is_static_) {
    reducer_->set_static_graph();
    logger_->set_static_graph();
  }
  if (options.hook == reference::Hook::kAllReduce)
    reducer_->register_builtin_comm_hook(c10d::BuiltinCommHookType::ALLREDUCE);
  if (options.hook == reference::Hook::kFloat16)
    reducer_->register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
  if (options.hook == reference::Hook::kElsewhere)
    reducer_->register_comm_hook(std::make_unique<UserHook>(group_, std::move(visit_hook)));
  (void)group->take();
}

void Wrapper::update_group(const c10::intrusive_ptr<RecordingGroup>& group) {
  update_process_group(*reducer_, group->process_group());
  *group_ = group;
}

// The hook comes after the reducer's own, which its constructor has added.
void Wrapper::add_ending_hook(const at::Tensor& parameter) {
  const std::weak_ptr<c10d::Reducer> weak = reducer_;
  torch::autograd::impl::grad_accumulator(parameter)->add_post_hook(
      std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [weak, is_on = is_ended_in_hook_](const variable_list& outputs, const variable_list&) {
            const std::shared_ptr<c10d::Reducer> reducer = weak.lock();
            if (reducer && *is_on) finalize_by_hand(*reducer);
            return outputs;
          }));
}

void Wrapper::end_pass_in_hook() {
  *is_ended_in_hook_ = !should_finalize_after_backward(*reducer_);
}

void Wrapper::end_pass() { finalize_by_hand(*reducer_); }

void Wrapper::begin_forward(bool is_synced) {
  if (is_synced) {
    ++synced_forwards_;
    reducer_->prepare_for_forward();
  }
  reducer_->rebuild_buckets();
}

bool Wrapper::has_static_sink() const {
  if (!is_static_) return false;
  return kSinkUntilQueued ? !*is_delay_queued_ : synced_forwards_ == 1;
}

std::vector<at::Tensor> Wrapper::end_forward(bool is_synced, std::vector<at::Tensor> outputs) {
  if (is_synced) reducer_->prepare_for_backward(is_dynamic_ ? outputs : std::vector<at::Tensor>());
  if (is_dynamic_) return pass_through_sink(outputs, {});
  if (!has_static_sink()) return outputs;
  return pass_through_sink(outputs, [reducer = reducer_, is_queued = is_delay_queued_] {
    if (std::exchange(*is_queued, true) && kSinkUntilQueued) return;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [reducer] { reducer->delay_all_reduce(); });
  });
}

}  // namespace lockstep::torch_subject
