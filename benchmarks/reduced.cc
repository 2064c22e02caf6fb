#include "benchmarks/reduced.h"

#include <algorithm>
#include <thread>

namespace lockstep::benchmarks {
namespace {

// Sends nothing to a parameter, and its own input to the next node of the chain.
class ChainNode final : public Node {
 public:
  ChainNode(Engine& engine, Ref<Parameter> parameter, Ref<Node> next)
      : Node(engine.next_sequence(), 1, 0) {
    edges_.push_back({std::move(parameter), 0});
    if (next) edges_.push_back({std::move(next), 0});
  }
  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext&) override {
    if (outgoing.size() > 1) outgoing[1] = incoming[0];
    return {};
  }
};

}  // namespace

class Reduced::HookNode final : public Node {
 public:
  explicit HookNode(Reduced& reduced)
      : Node(reduced.engine_.next_sequence(), 1, 0), reduced_(reduced) {}
  Status apply(std::span<const Tensor>, std::span<Tensor>, const BackwardContext& here) override {
    return reduced_.call_hooks(here);
  }

 private:
  Reduced& reduced_;
};

Reduced::Reduced(const Place& place, const Workload& workload, platform::Duration pace)
    : rank_(place.rank), elements_(workload.elements()), pace_(pace) {
  std::int64_t first = 0;
  for (const std::int64_t elements : workload.parameters) {
    const Shape shape = Shape::row_major({elements});
    members_.push_back({make_ref<Parameter>("p" + std::to_string(members_.size()), device_,
                                            DType::kFloat32, shape, true, engine_.next_sequence()),
                        first,
                        {},
                        {}});
    members_.back().parameter->set_grad(*Tensor::empty(device_, DType::kFloat32, shape));
    first += elements;
  }
  gradient_.push_back(*Tensor::empty(device_, DType::kFloat32, Shape::row_major({1})));
}

Result<std::unique_ptr<Reduced>> Reduced::create(const Place& place,
                                                 const std::string& store_prefix,
                                                 const Workload& workload, ReducerOptions options,
                                                 platform::Duration pace) {
  std::unique_ptr<Reduced> made(new Reduced(place, workload, pace));
  std::vector<Ref<Parameter>> parameters;
  for (const Member& member : made->members_) parameters.push_back(member.parameter);
  options.trace_capacity = 1024;
  auto parallel =
      DataParallel::create(std::move(parameters), made->engine_, std::move(options),
                           {place.group, std::make_shared<PrefixStore>(store_prefix, place.store)});
  if (!parallel) return failed(std::move(parallel.error()));
  made->parallel_ = std::move(*parallel);
  return made;
}

Status Reduced::prepare(const Values& values) {
  for (Member& member : members_) {
    Tensor gradient = member.parameter->grad();
    if (backward_ == Backward::kArriving) {
      Result<Tensor> made = Tensor::empty(device_, DType::kFloat32, member.parameter->shape());
      if (!made) return made.error();
      gradient = member.arriving = std::move(*made);
      member.parameter->undefine_grad();
    }
    values.fill(rank_, member.first, gradient.elements(),
                reinterpret_cast<float*>(gradient.data()));
  }
  outputs_.clear();
  const auto module = [this](std::vector<Edge>& edges) {
    edges.push_back({make_root(), 0});
    return Status();
  };
  LOCKSTEP_RETURN_IF_ERROR(parallel_->forward(module, outputs_));
  first_trace_ = parallel_->reducer().trace().next_sequence();
  return {};
}

Ref<Node> Reduced::make_root() {
  if (backward_ != Backward::kChain) return make_ref<HookNode>(*this);
  Ref<Node> root;
  for (const Member& member : members_)
    root = make_ref<ChainNode>(engine_, member.parameter, std::move(root));
  return root;
}

Status Reduced::call_hooks(const BackwardContext& here) {
  const platform::Duration begin = platform::now();
  const Tensor nothing;  // What arrives where the gradients are there already.
  for (auto member = members_.rbegin(); member != members_.rend(); ++member) {
    if (pace_.count() > 0) {
      const double share =
          static_cast<double>(elements_ - member->first) / static_cast<double>(elements_);
      const auto due = begin + std::chrono::duration_cast<platform::Duration>(pace_ * share);
      std::this_thread::sleep_until(std::chrono::steady_clock::time_point(due));
      member->hooked_at = platform::now();
    }
    if (backward_ == Backward::kArriving) {
      const Tensor arriving = std::move(member->arriving);
      LOCKSTEP_RETURN_IF_ERROR(member->parameter->apply({&arriving, 1}, {}, here));
    } else {
      LOCKSTEP_RETURN_IF_ERROR(member->parameter->apply({&nothing, 1}, {}, here));
    }
  }
  hooks_done_ = platform::now();
  return {};
}

Status Reduced::step() {
  Status status = engine_.backward(outputs_, gradient_, false);
  done_ = platform::now();
  return status;
}

std::uint64_t Reduced::wrong(const Values& values) const {
  std::uint64_t wrong = 0;
  for (const Member& member : members_) {
    const Tensor& gradient = member.parameter->grad();
    wrong += values.not_average(member.first, gradient.elements(),
                                reinterpret_cast<const float*>(gradient.data()));
  }
  return wrong;
}

float* Reduced::first_result() {
  return reinterpret_cast<float*>(members_.front().parameter->grad().data());
}

StepNotes Reduced::notes() const {
  if (pace_.count() == 0) return {};
  std::vector<std::int64_t> delays;
  for (const TraceEntry& entry : parallel_->reducer().trace().entries(first_trace_)) {
    platform::Duration complete{};
    const auto& bucket =
        parallel_->reducer().layout().buckets[static_cast<std::size_t>(entry.bucket)];
    for (const BucketMember& member : bucket.members)
      complete = std::max(complete, members_[member.parameter].hooked_at);
    delays.push_back((entry.launched - complete).count());
  }
  std::sort(delays.begin(), delays.end());
  StepNotes notes;
  if (!delays.empty()) notes.launch_delay_ns = delays[delays.size() / 2];
  notes.exposed_ns = (done_ - hooks_done_).count();
  return notes;
}

std::vector<std::int64_t> Reduced::buckets() const {
  std::vector<std::int64_t> elements;
  for (const BucketLayout& bucket : parallel_->reducer().layout().buckets)
    elements.push_back(bucket.elements);
  return elements;
}

BareChain::BareChain(const Workload& workload) {
  for (const std::int64_t elements : workload.parameters)
    parameters_.push_back(make_ref<Parameter>("p" + std::to_string(parameters_.size()), device_,
                                              DType::kFloat32, Shape::row_major({elements}), true,
                                              engine_.next_sequence()));
  gradient_.push_back(*Tensor::empty(device_, DType::kFloat32, Shape::row_major({1})));
}

Status BareChain::prepare(const Values&) {
  Ref<Node> root;
  for (const Ref<Parameter>& parameter : parameters_)
    root = make_ref<ChainNode>(engine_, parameter, std::move(root));
  outputs_.clear();
  outputs_.push_back({std::move(root), 0});
  return {};
}

Status BareChain::step() { return engine_.backward(outputs_, gradient_, false); }

}  // namespace lockstep::benchmarks
