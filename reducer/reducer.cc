#include "reducer/reducer.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "reducer/agreement.h"
#include "reducer/base/check.h"
#include "reducer/pass.h"

// Construction, passes and the public calls. The path of a gradient is in reduction.cc, failures in
// failure.cc.
namespace lockstep::inline LOCKSTEP_NS {
namespace {

constexpr std::uint32_t kNotASlot = ~std::uint32_t{0};
constexpr std::uint32_t kNever = ~std::uint32_t{0};
constexpr std::size_t kUsualLine = 96;  // characters

std::string describe_parameter(std::size_t index, const Parameter& parameter) {
  std::string line;
  line.reserve(kUsualLine);
  line.append("parameter ").append(std::to_string(index)).append(" ");
  line.append(parameter.name()).append(": ").append(name_of(parameter.dtype())).append(" [");
  const Shape& shape = parameter.shape();
  for (int d = 0; d < shape.dims; ++d)
    line.append(d ? " " : "").append(std::to_string(shape.sizes[static_cast<std::size_t>(d)]));
  line.append("] strides [");
  for (int d = 0; d < shape.dims; ++d)
    line.append(d ? " " : "").append(std::to_string(shape.strides[static_cast<std::size_t>(d)]));
  line.append(parameter.requires_grad() ? "] requires_grad" : "] frozen");
  return line.append(" device ").append(std::to_string(parameter.device().index()));
}

std::string describe_options(const ReducerOptions& options) {
  std::string line =
      "options: find_unused_parameters " +
      std::string(options.find_unused_parameters ? "on" : "off") + ", static_graph " +
      (options.static_graph ? "on" : "off") + ", gradient_as_bucket_view " +
      (options.gradient_as_bucket_view ? "on" : "off") + ", reduction " +
      (options.reduction == Reduction::kNative ? "native" : "rank-ordered") + ", rebuild_buckets " +
      (options.rebuild_buckets ? "on" : "off") + ", auto_sync " +
      (options.auto_sync ? "on" : "off") + ", pinned_layout " +
      (options.pinned_layout ? std::to_string(options.pinned_layout->hash) : "none") +
      ", schedule " +
      (options.schedule == Schedule::kOverlapped ? "overlapped" : "after backward") + ", hook " +
      (options.hook ? options.hook->name() : "none") + ", coalesced_bytes " +
      std::to_string(options.coalesced_bytes) + ", bucket limits";
  for (const std::uint64_t limit : options.bucket_limits) line += " " + std::to_string(limit);
  return line;
}

}  // namespace

Reducer::Reducer(ReducerOptions options, Membership membership)
    : options_(std::move(options)),
      membership_(std::move(membership)),
      trace_(options_.trace_capacity) {}

Result<std::unique_ptr<Reducer>> Reducer::create(std::vector<Ref<Parameter>> parameters,
                                                 ReducerOptions options, Membership membership) {
  LOCKSTEP_CHECK(membership.group != nullptr);
  LOCKSTEP_CHECK(membership.store != nullptr);
  if (options.trace_capacity == 0)
    return failed(
        Status(Code::kInvalidArgument, "trace_capacity is 0: keep at least one collective"));
  if (options.static_graph && options.find_unused_parameters)
    return failed(Status(Code::kInvalidArgument,
                         "static_graph finds unused parameters by itself: turn "
                         "find_unused_parameters off"));
  std::unique_ptr<Reducer> reducer(new Reducer(std::move(options), std::move(membership)));
  if (Status status = reducer->build(std::move(parameters)); !status.ok()) return failed(status);
  if (Status status = reducer->agree_with_peers(); !status.ok()) return failed(status);
  // Not before all ranks know that they have the same one: then all refuse it, or none.
  if (reducer->options_.pinned_layout)
    if (Status status = reducer->lay_out_first(); !status.ok()) return failed(status);
  for (std::size_t i = 0; i < reducer->slots_.size(); ++i)
    reducer->slots_[i].parameter->add_hook(reducer.get(), i);
  return reducer;
}

Status Reducer::build(std::vector<Ref<Parameter>> parameters) {
  agreement_.reserve(parameters.size() + 1);
  infos_.reserve(parameters.size());
  slots_.reserve(parameters.size());
  agreement_.push_back(describe_options(options_));
  std::vector<Parameter*> distinct;
  for (const Ref<Parameter>& parameter : parameters) {
    if (!parameter) return Status(Code::kInvalidArgument, "a parameter of the list is null");
    if (std::find(distinct.begin(), distinct.end(), parameter.get()) != distinct.end()) continue;
    distinct.push_back(parameter.get());
    agreement_.push_back(describe_parameter(infos_.size(), *parameter));
    infos_.push_back({parameter->name(), parameter->dtype(), parameter->device().index(),
                      parameter->shape().elements(), parameter->requires_grad()});
    if (!parameter->requires_grad()) continue;
    if (!backward_group().can_reduce(parameter->dtype()))
      return Status(Code::kInvalidArgument, "the process group cannot reduce " +
                                                std::string(name_of(parameter->dtype())) +
                                                ", the dtype of parameter " + parameter->name());
    if (const DType dtype = parameter->dtype();
        options_.hook && !backward_group().can_reduce(options_.hook->wire_dtype(dtype)))
      return Status(Code::kInvalidArgument,
                    "the process group cannot reduce " +
                        std::string(name_of(options_.hook->wire_dtype(dtype))) +
                        ", which the hook " + options_.hook->name() + " makes of parameter " +
                        parameter->name());
    slot_numbers_.insert(parameter.get(), static_cast<std::uint32_t>(slots_.size()));
    Slot& slot = slots_.emplace_back();
    slot.parameter = parameter;
    slot.info = infos_.size() - 1;
  }

  usage_map_.resize(slots_.size());
  if (!options_.pinned_layout) LOCKSTEP_RETURN_IF_ERROR(lay_out_first());
  return start_over();
}

// The layout that a group begins with: the pinned one, or that of B1 and B2.
Status Reducer::lay_out_first() {
  if (options_.pinned_layout) {
    LOCKSTEP_RETURN_IF_ERROR(check_layout(*options_.pinned_layout, infos_));
    return lay_out(*options_.pinned_layout);
  }
  const std::vector<std::uint64_t> coalesced(1, options_.coalesced_bytes);
  Result<Layout> layout =
      assign_buckets(infos_, after_backward() ? coalesced : options_.bucket_limits);
  if (!layout) return layout.error();
  return lay_out(std::move(*layout));
}

// Makes the buckets of a layout. Gradients that are views move along (B7). Changes nothing if
// memory runs out.
Status Reducer::lay_out(Layout layout) {
  std::vector<std::size_t> slot_of(infos_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) slot_of[slots_[i].info] = i;
  std::vector<Bucket> buckets(layout.buckets.size());
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const BucketLayout& bucket = layout.buckets[b];
    const std::size_t bytes = static_cast<std::size_t>(bucket.elements) * size_of(bucket.dtype);
    Device& device = slots_[slot_of[bucket.members[0].parameter]].parameter->device();
    Result<Ref<Storage>> storage = device.allocate(bytes);
    if (!storage) return storage.error();
    device.fill_zero(device.current_stream(), (*storage)->data(), bytes);
    buckets[b].storage = std::move(*storage);
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (const BucketMember& member : layout.buckets[b].members) {
      Slot& slot = slots_[slot_of[member.parameter]];
      const bool moves = slot.place.defined() && in_place(slot);
      Tensor place(buckets[b].storage, member.offset, layout.buckets[b].dtype,
                   slot.parameter->shape());
      Device& device = slot.parameter->device();
      if (moves) {
        device.copy(device.current_stream(), slot.place, place);
        slot.parameter->move_grad(place);
      }
      slot.place = std::move(place);
      slot.bucket = b;
      buckets[b].slots.push_back(slot_of[member.parameter]);
    }
    buckets[b].hooked = hooked(layout, b, buckets[b]);
  }
  layout_ = std::move(layout);
  buckets_ = std::move(buckets);
  return {};
}

Status Reducer::agree_with_peers() {
  const ProcessGroup& second = backward_group();
  if (second.rank() != membership_.group->rank() || second.size() != membership_.group->size())
    return Status(Code::kInvalidArgument,
                  "the backward group is not one of the same ranks in the same order");
  LOCKSTEP_RETURN_IF_ERROR(agree(*membership_.group, agreement_));
  const double size = membership_.group->size();
  factor_ = 1.0 / size;
  float_factor_ = static_cast<double>(1.0f / static_cast<float>(size));
  return {};
}

// The state of a reducer that has seen no pass in its group.
Status Reducer::start_over() {
  close_pass(false);
  if (rebuilt_) LOCKSTEP_RETURN_IF_ERROR(lay_out_first());
  ready_order_.clear();
  ready_order_.reserve(slots_.size());
  recorded_ = false;
  rebuilt_ = false;
  next_pass_ = 0;
  launched_ = 0;
  counted_ = false;
  if (options_.hook) options_.hook->reset();
  for (Slot& slot : slots_) slot.due = options_.static_graph ? kNever : 1;
  trace_.clear();
  poison_ = Status();
  return {};
}

Reducer::~Reducer() {
  for (Slot& slot : slots_) slot.parameter->remove_hook(this);
  if (pass_ && pass_->state == Pass::State::kRunning && launched_ > 0)
    stop_group(Status(Code::kAborted, "the reducer was destroyed in the middle of a pass"));
  close_pass(false);
}

Status Reducer::begin_forward() {
  if (!poison_.ok()) {
    Failure refusal = poison_.failure();
    refusal.detail = "refused until reset, because of an earlier " +
                     std::string(name_of(refusal.code)) + ": " + refusal.detail;
    refusal.code = Code::kPoisoned;
    return refusal;
  }
  return check_complete();
}

Status Reducer::check_complete() {
  if (!pass_ || pass_->state != Pass::State::kRunning) return {};
  return give_up(incomplete());
}

Status Reducer::rebuild_buckets() {
  if (!rebuilds() || !recorded_ || rebuilt_ || slots_.empty()) return {};
  if (pass_) return {};  // further forwards of a pass belong to its buckets
  if (Status status = agree_on_order(); !status.ok()) return fail(std::move(status.failure()));
  std::vector<std::size_t> order;
  for (const std::int32_t slot : ready_order_) {
    const auto index = static_cast<std::size_t>(slot);
    order.push_back(index < slots_.size() ? slots_[index].info : infos_.size());
  }
  Result<Layout> layout = assign_buckets_in_order(infos_, options_.bucket_limits, order);
  if (!layout) return fail(std::move(layout.error().failure()));
  if (Status status = lay_out(std::move(*layout)); !status.ok())
    return fail(std::move(status.failure()));
  rebuilt_ = true;
  return {};
}

std::vector<std::size_t> Reducer::rebuilt_order() const {
  std::vector<std::size_t> order;
  if (!rebuilt_) return order;
  for (const std::int32_t slot : ready_order_)
    order.push_back(slots_[static_cast<std::size_t>(slot)].info);
  return order;
}

// All take rank 0's order.
Status Reducer::agree_on_order() {
  Collective collective;
  collective.op = Op::kBroadcast;
  collective.dtype = DType::kInt32;
  collective.count = ready_order_.size();
  collective.data = reinterpret_cast<std::byte*>(ready_order_.data());
  collective.pass = next_pass_;
  std::int64_t sequence = 0;
  LOCKSTEP_RETURN_IF_ERROR(launch(collective, usage_work_, TraceEntry::What::kRebuild, sequence));
  return await(usage_work_, sequence, kNone);
}

Status Reducer::arm(std::vector<Edge>& outputs, Engine& engine) {
  LOCKSTEP_RETURN_IF_ERROR(check_complete());  // a backward may have run inside of the forward
  if (outputs.empty()) return {};
  if (!pass_) open_pass();
  LOCKSTEP_CHECK(pass_->state == Pass::State::kOpen);
  if (options_.find_unused_parameters) {
    std::vector<Edge> inputs(std::make_move_iterator(outputs.begin()),
                             std::make_move_iterator(outputs.end()));
    const Ref<Node> shared(new PassOutput(pass_, std::move(inputs), engine.next_sequence()));
    for (std::uint32_t slot = 0; slot < outputs.size(); ++slot) outputs[slot] = {shared, slot};
    return {};
  }
  for (Edge& output : outputs) {
    std::vector<Edge> input(1, std::move(output));
    output = {Ref<Node>(new PassOutput(pass_, std::move(input), engine.next_sequence())), 0};
  }
  return {};
}

Status Reducer::reset(Membership membership) {
  LOCKSTEP_CHECK(membership.group != nullptr);
  LOCKSTEP_CHECK(membership.store != nullptr);
  if (membership.group != membership_.group)
    stop_group(Status(Code::kAborted, "the reducer moved to a new process group"));
  membership_ = std::move(membership);
  Status status = start_over();
  if (status.ok()) status = agree_with_peers();
  if (!status.ok()) poison_ = status;
  return status;
}

// Called by the engine, through the pass, before any node of the backward has run.
Status Reducer::begin_pass(Pass& pass, GraphTask& task) {
  platform::MutexLock lock(mutex_);
  if (!poison_.ok()) return poison_;
  if (running_task_ == &task.outermost()) return {};
  LOCKSTEP_CHECK(&pass == pass_.get());
  if (pass.state == Pass::State::kOpen) {
    pass.state = Pass::State::kRunning;
    pass.number = next_pass_++;
    launched_ = 0;
    next_bucket_ = 0;
    launching_ = false;
    unready_ = slots_.size();
    unused_marked_ = false;
    for (Slot& slot : slots_) {
      slot.ready = false;
      slot.hooks = 0;
      slot.last_hook = 0;
    }
    if (!recorded_) ready_order_.clear();
    hooks_ = 0;
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      buckets_[b].pending = layout_.buckets[b].members.size();
    find_unused(pass);
  }
  running_task_ = &task.outermost();
  task.outermost().at_end(&pass);
  return {};
}

// The slots that no output of the pass, alive now, leads to; in static mode, those that had no hook
// in the pass that was counted.
void Reducer::find_unused(Pass& pass) {
  unused_.clear();
  if (options_.static_graph) {
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].due == 0) unused_.push_back(i);
  }
  if (!options_.find_unused_parameters) return;
  search_roots_.clear();
  pass.append_outputs(search_roots_);
  reachable_.assign(slots_.size(), false);
  for (const Node* node : search_.reachable_from(search_roots_)) {
    const std::uint32_t index = slot_numbers_.number_or(node, kNotASlot);
    if (index != kNotASlot) reachable_[index] = true;
  }
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (!reachable_[i]) unused_.push_back(i);
}

void Reducer::open_pass() {
  LOCKSTEP_CHECK(!pass_);
  const int rank = membership_.group->rank();
  if (closed_pass_ && closed_pass_->use_count() == 1) {  // none of its outputs is left
    pass_ = std::move(closed_pass_);
    pass_->reopen(this, rank);
  } else {
    pass_ = make_ref<Pass>(this, rank);
  }
}

void Reducer::close_pass(bool complete) {
  running_task_ = nullptr;
  for (Slot& slot : slots_) put_back(slot);
  if (!pass_) return;
  pass_->close(complete);
  closed_pass_ = std::move(pass_);
}

}  // namespace lockstep::inline LOCKSTEP_NS
