#include "reducer/torch/torch_reducer.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/gloo/gloo_process_group.h"
#include "reducer/torch/errors.h"
#include "reducer/torch/profiled_group.h"
#include "reducer/torch/tensors.h"

namespace lockstep::torch_adapter {

namespace ta = ::torch::autograd;

std::shared_ptr<Group> Group::connect(std::shared_ptr<Store> store, int rank, int size,
                                      platform::Duration timeout, const std::string& address,
                                      bool share_memory) {
  GlooOptions options;
  options.timeout = timeout;
  GlooContextOptions connection;
  connection.timeout = timeout;
  connection.address = address;
  connection.share_memory = share_memory;
  auto made = GlooProcessGroup::connect(std::make_shared<PrefixStore>("group", store), rank, size,
                                        options, connection);
  if (!made) raise(made.error());
  auto group = std::make_shared<Group>();
  group->why_no_shared_memory = (*made)->context()->why_no_shared_memory();
  group->group = std::make_shared<ProfiledGroup>(std::move(*made));
  group->store = std::move(store);
  return group;
}

Membership Group::next_membership() {
  const std::string prefix = "reducer" + std::to_string(generation++);
  return {group, std::make_shared<PrefixStore>(prefix, store)};
}

// PyTorch calls the final callback of a backward that succeeds. It destroys that of one that fails
// without a call, before backward() raises what failed: then this tells the reducer.
class TorchReducer::End {
 public:
  explicit End(std::shared_ptr<TorchReducer> reducer) : reducer_(std::move(reducer)) {}
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() {
    if (is_done_ || !reducer_->is_in_backward()) return;
    Failure failure;
    failure.code = Code::kUserFailure;
    failure.definite = true;
    failure.detail = "the backward of this rank failed in PyTorch: it raised there";
    try {
      reducer_->end_backward(std::move(failure));
    } catch (...) {  // backward() raises what failed first.
    }
  }
  void succeeded() {
    is_done_ = true;
    if (reducer_->is_in_backward()) reducer_->end_backward({});
  }

 private:
  const std::shared_ptr<TorchReducer> reducer_;
  bool is_done_ = false;
};

class TorchReducer::Busy {
 public:
  explicit Busy(TorchReducer& reducer) : reducer_(reducer) { ++reducer_.busy_; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() { --reducer_.busy_; }

 private:
  TorchReducer& reducer_;
};

std::shared_ptr<TorchReducer> TorchReducer::create(const std::vector<NamedTensor>& parameters,
                                                   const std::vector<NamedTensor>& buffers,
                                                   bool sends_parameters, ReducerOptions options,
                                                   Group& group) {
  std::shared_ptr<TorchReducer> self(new TorchReducer);
  const bool has_unused = options.find_unused_parameters || options.static_graph;
  self->mode_ = {options.find_unused_parameters, options.gradient_as_bucket_view,
                 has_unused || options.gradient_as_bucket_view, options.rebuild_buckets};
  self->add_parameters(parameters, sends_parameters);
  for (const NamedTensor& buffer : buffers) self->sent_.add(buffer.name, buffer.tensor);
  options.buffers = self->sent_.buffers();
  self->sent_.stage();
  auto reducer = Reducer::create(self->parameters_, std::move(options), group.next_membership());
  if (!reducer) raise(reducer.error());
  self->sent_.unstage();
  self->reducer_ = std::move(*reducer);
  for (const auto& leaf : self->leaves_) leaf->watch(*self);
  return self;
}

void TorchReducer::add_parameters(const std::vector<NamedTensor>& parameters,
                                  bool sends_parameters) {
  for (const auto& [name, tensor, has_sparse_gradients] : parameters) {
    const std::optional<DType> dtype = gradient_dtype(tensor.scalar_type());
    const std::optional<Shape> shape = shape_of(tensor);
    const bool is_trained = tensor.requires_grad();
    if (!is_dense(tensor))
      refuse("parameter " + name + " has gaps between its elements, or elements that share " +
             "memory: call contiguous() on it before wrapping");
    if (is_trained && !dtype)
      refuse("parameter " + name + " has the dtype " + c10::toString(tensor.scalar_type()) +
             ", which Lockstep does not reduce: convert it, or set requires_grad to False");
    if (is_trained && !shape)
      refuse("parameter " + name + " has " + std::to_string(tensor.dim()) + " dimensions, and " +
             "Lockstep has " + std::to_string(kMaxDims) + ": view it with fewer of them");
    if (is_trained) {
      const auto gradients =
          has_sparse_gradients ? Parameter::Gradients::kSparse : Parameter::Gradients::kDense;
      leaves_.push_back(std::make_unique<Leaf>(tensor, name, numbers_.next(), gradients));
      parameters_.push_back(leaves_.back()->parameter());
      walk_.add(leaves_.back()->accumulator(), parameters_.back().get());
    } else {  // It is sent alone, so bytes will do.
      parameters_.push_back(make_ref<Parameter>(name, host_device(), DType::kByte,
                                                bytes_of(tensor).shape(), false, numbers_.next()));
    }
    if (!sends_parameters) continue;
    Tensor value = bytes_of(tensor);
    if (is_trained) value = Tensor(value.storage(), 0, *dtype, *shape);
    parameters_.back()->set_value(std::move(value));
  }
}

TorchReducer::~TorchReducer() {
  if (!reducer_) return;
  state_ = State::kIdle;  // The callback of a backward keeps this, so none runs.
  close();
}

void TorchReducer::close(const std::string& why) {
  if (!reducer_) return;
  why_closed_ = why;
  if (is_in_backward()) {
    state_ = State::kClosesAfterBackward;
    return;
  }
  for (const auto& leaf : leaves_) leaf->unwatch();
  blind_.reset();
  reducer_.reset();
}

bool TorchReducer::take_over(const at::Tensor& variable) {
  auto* const observer = dynamic_cast<TorchReducer*>(Leaf::observer_of(variable));
  if (observer == nullptr) return false;
  observer->close(
      "one of its parameters was wrapped again, and a parameter has one wrapper: wrap a module "
      "once");
  return true;
}

const Reducer& TorchReducer::reducer() const {
  if (!reducer_) refuse("this DistributedDataParallel is closed: " + why_closed_);
  return *reducer_;
}
Reducer& TorchReducer::open_reducer() { return const_cast<Reducer&>(reducer()); }

void TorchReducer::begin_forward(std::vector<at::Tensor> buffers, bool is_synced,
                                 bool sends_buffers_again) {
  Reducer& reducer = open_reducer();
  const Busy busy(*this);
  check(reducer.begin_forward());
  if (!buffers.empty()) {
    sent_.replace(std::move(buffers));
    sent_.stage();
  }
  const bool always = sends_buffers_again && !sent_.buffers().empty();
  check(reducer.refresh_state(always ? Reducer::Refresh::kEachForward
                                     : Reducer::Refresh::kOncePerWindow));
  sent_.unstage();
  if (!is_synced || is_rebuilt_ || !mode_.rebuilds) return;
  take_all();
  for (const auto& leaf : leaves_) leaf->drop_unused_view();
  const Status status = reducer.rebuild_buckets();
  is_rebuilt_ = !reducer.rebuilt_order().empty();
  give_all();
  check(status);
}

bool TorchReducer::sends_buffers(bool sends_buffers_again) const {
  return reducer().sends_buffers(sends_buffers_again && !sent_.buffers().empty()
                                     ? Reducer::Refresh::kEachForward
                                     : Reducer::Refresh::kOncePerWindow);
}

std::vector<at::Tensor> TorchReducer::arm(const std::vector<at::Tensor>& outputs) {
  Reducer& reducer = open_reducer();
  const bool is_blind = outputs.empty();
  if (is_blind && blind_) return {};
  // In dynamic mode a forward's outputs share a node, so that a backward from any of them comes to
  // the graph behind all of them.
  const std::size_t together = is_blind ? 1 : mode_.is_dynamic ? outputs.size() : 1;
  const std::size_t count = is_blind ? 1 : outputs.size();
  std::vector<Ref<TorchGraph>> graphs;
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % together == 0)
      graphs.push_back(
          make_ref<TorchGraph>(numbers_.next(), static_cast<std::uint32_t>(together), walk_));
    edges.push_back({graphs.back(), static_cast<std::uint32_t>(i % together)});
  }
  check(reducer.arm(edges, numbers_));
  if (is_blind) {
    blind_ = edges[0].node;
    return {};
  }
  std::vector<at::Tensor> passed;
  const at::NoGradGuard no_grad;
  NodeHandle sink;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % together == 0) {
      ta::edge_list next;
      for (std::size_t k = i; k < i + together; ++k)
        next.push_back(ta::impl::gradient_edge(outputs[k]));
      sink = make_node<PassSink>(std::move(next), shared_from_this(), edges[i].node);
      graphs[i / together]->start_at(sink.get());
      sinks_.add(static_cast<PassSink&>(*sink));
    }
    at::Tensor output = outputs[i].detach();  // It shares memory and version counter.
    ta::create_gradient_edge(output, sink);
    passed.push_back(std::move(output));
  }
  return passed;
}

void TorchReducer::begin_join(const JoinOptions& options) {
  check(open_reducer().begin_join(options));
}

void TorchReducer::end_join() {
  Reducer& reducer = open_reducer();
  const Busy busy(*this);
  take_all();
  sent_.stage();
  Status status = reducer.end_join();
  if (status.ok()) sent_.unstage();
  give_all();
  check(status);
}

void TorchReducer::shadow_forward(bool is_synced, bool with_buffers) {
  Reducer& reducer = open_reducer();
  const Busy busy(*this);
  take_all();
  sent_.stage();
  Status status = reducer.shadow_forward(is_synced, with_buffers);
  if (status.ok()) sent_.unstage();
  is_rebuilt_ = !reducer.rebuilt_order().empty();
  give_all();
  check(status);
}

void TorchReducer::reset(Group& group) {
  Reducer& reducer = open_reducer();
  if (is_in_backward()) refuse("reset() was called inside of a backward: call it after that");
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    Parameter& parameter = *leaves_[i]->parameter();
    if (!parameter.value().defined()) continue;
    const Tensor now = bytes_of(leaves_[i]->variable());
    parameter.set_value(Tensor(now.storage(), 0, parameter.dtype(), parameter.shape()));
  }
  take_all();
  blind_.reset();
  sent_.stage();
  const Status status = reducer.reset(group.next_membership());
  if (status.ok()) sent_.unstage();
  is_rebuilt_ = false;
  after_pass_.last = kNone;
  give_all();
  check(status);
}

void TorchReducer::abort(const std::string& why) {
  Failure failure;
  failure.code = Code::kAborted;
  failure.rank = failure.reported_by = open_reducer().group().rank();
  failure.definite = true;
  failure.detail = why;
  open_reducer().group().abort(std::move(failure));
}

void TorchReducer::check_complete() { check(open_reducer().check_complete()); }

void TorchReducer::sink_died(PassSink& sink) { sinks_.remove(sink); }

void TorchReducer::backward_reached(PassSink& sink) {
  if (is_in_backward() || running_graph_accumulates()) begin_backward(sink.pass_output());
}

void TorchReducer::begin_backward(lockstep::Node& pass_output) {
  if (!reducer_) refuse("the DistributedDataParallel of this output is closed: " + why_closed_);
  const bool is_first = !is_in_backward();
  if (is_first && mode_.takes_all) take_all();
  std::optional<at::RecordFunction> event;  // As PyTorch's profiler calls this.
  if (is_first && mode_.is_dynamic) {
    event.emplace(at::RecordScope::FUNCTION);
    if (event->isActive()) event->before("search_unused_parameters");
  }
  Status status = pass_output.observer()->backward_begins(tasks_.of_pass, {});
  if (!is_first && status.ok()) return;
  if (!status.ok()) fail(std::move(status));
  state_ = State::kInBackward;
  auto end = std::make_shared<End>(shared_from_this());
  ta::Engine::get_default_engine().queue_callback([end] { end->succeeded(); });
}

void TorchReducer::accumulation_begins(Leaf& leaf) {
  // A parameter that the loss uses apart from the outputs may come before them.
  if (!is_in_backward()) {
    if (PassSink* const sink = sinks_.in_running_graph())
      begin_backward(sink->pass_output());
    else if (const Ref<lockstep::Node> blind = blind_)
      begin_backward(*blind);
  }
  Status status =
      leaf.parameter()->accumulation_begins(is_in_backward() ? tasks_.of_pass : tasks_.local);
  if (!status.ok()) fail(std::move(status));
}

void TorchReducer::accumulation_ended(Leaf& leaf, bool has_arrived) {
  // Nothing else looks at what the user has zeroed before a backward that belongs to no pass.
  if (!has_arrived && !is_in_backward()) leaf.forget_zeroed();
  leaf.take();
  if (has_arrived && !leaf.parameter()->grad().defined())
    refuse("the gradient of parameter " + leaf.parameter()->name() +
           " was gone before it was reduced: an optimizer in the backward, a hook, or distributed "
           "autograd has taken it. Use it after the backward");
  Status status = leaf.parameter()->accumulation_ended(
      is_in_backward() ? tasks_.of_pass : tasks_.local, has_arrived);
  if (!status.ok()) fail(std::move(status));
  if (!is_in_backward())
    leaf.let_go();
  else if (mode_.has_views)
    leaf.give();
}

void TorchReducer::fail(Status status) {
  end_backward(std::move(status));
  LOCKSTEP_CHECK(false && "a failed backward raises");
  std::abort();
}

// Raises where the backward, or its pass, has failed.
void TorchReducer::end_backward(Status status) {
  blind_.reset();
  std::exception_ptr refused;
  if (status.ok()) {
    try {
      // The pass may have begun in an earlier backward: what that has made ready is reduced now.
      for (const auto& leaf : leaves_)
        if (!leaf->is_taken()) leaf->take();
    } catch (const std::exception& error) {
      refused = std::current_exception();
      status = Status(Code::kUserFailure, error.what());
    }
  }
  status = tasks_.of_pass.finish(std::move(status));
  give_all();
  if (state_.exchange(State::kIdle) == State::kClosesAfterBackward) close(why_closed_);
  if (refused) std::rethrow_exception(refused);
  check(status);
  note_completed_pass();
}

void TorchReducer::note_completed_pass() {
  if (!reducer_ || reducer_->last_pass().pass == after_pass_.last) return;
  after_pass_.last = reducer_->last_pass().pass;
  if (mode_.is_dynamic) {
    const std::span<const std::int32_t> counts = reducer_->usage_counts();
    std::vector<std::int32_t>& before = after_pass_.usage;
    const bool is_same = std::equal(before.begin(), before.end(), counts.begin(), counts.end());
    if (!before.empty() && !is_same) after_pass_.is_static = false;
    if (!is_same) before.assign(counts.begin(), counts.end());
  }
  if (after_pass_.call) after_pass_.call();
}

// autograd.grad() and backward(inputs=) run a part of the graph: perhaps none of the accumulators.
bool TorchReducer::running_graph_accumulates() const {
  const auto* parts = ta::get_current_graph_task_exec_info();
  if (parts == nullptr || parts->empty()) return true;
  return std::any_of(leaves_.begin(), leaves_.end(), [&](const auto& leaf) {
    const auto part = parts->find(const_cast<ta::Node*>(leaf->accumulator()));
    return part != parts->end() && part->second.needed_;
  });
}

void TorchReducer::take_all() {
  for (const auto& leaf : leaves_) {
    leaf->forget_zeroed();
    leaf->take();
  }
}

void TorchReducer::give_all() {
  for (const auto& leaf : leaves_) {
    leaf->give();
    leaf->let_go();
  }
}

}  // namespace lockstep::torch_adapter
