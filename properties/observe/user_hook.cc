#include "properties/observe/user_hook.h"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "properties/observe/future_thread.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using faults::HookCall;
using reference::HookBackward;
using reference::HookCompletion;
using reference::HookResult;

// The root of the hook's own graph. It passes its gradient on to the parameter.
class OwnNode final : public Node {
 public:
  OwnNode(Engine& engine, Ref<Parameter> parameter) : Node(engine.next_sequence(), 1, 0) {
    edges_.push_back({std::move(parameter), 0});
  }
  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext&) override {
    outgoing[0] = incoming[0];
    return {};
  }
};

void expect(bool holds, const char* otherwise) {
  if (!holds) throw std::logic_error(otherwise);
}

class UserHook final : public CommunicationHook {
 public:
  UserHook(UserHookSetup setup, Engine& engine, RankEnvironment& environment)
      : setup_(std::move(setup)),
        engine_(engine),
        environment_(environment),
        futures_(setup_.completion == HookCompletion::kReversed) {}

  std::string name() const override { return "user"; }
  // What a pass that failed has left is of no use.
  void reset() noexcept override { results_.clear(); }

  Status start(HookBucket& bucket) override {
    check_order(bucket);
    check_factor(bucket);
    check_views(bucket);
    environment_.visit_node();
    LOCKSTEP_RETURN_IF_ERROR(run_backward(bucket));
    LOCKSTEP_RETURN_IF_ERROR(environment_.visit_hook(HookCall::kStart));
    if (results_.size() <= static_cast<std::size_t>(bucket.index()))
      results_.resize(static_cast<std::size_t>(bucket.index()) + 1);
    OfBucket& kept = of(bucket);
    kept = {};
    LOCKSTEP_RETURN_IF_ERROR(start_sum(bucket, kept));
    return promise(bucket, kept);
  }

  Result<Tensor> finish(HookBucket& bucket) override {
    expect(was_last_, "no bucket of the pass was the last one");
    environment_.visit_node();
    OfBucket kept = std::exchange(of(bucket), {});
    expect(!kept.is_complete || kept.is_complete->load(),
           "finish() comes before the future of its bucket is complete");
    if (Status status = environment_.visit_hook(HookCall::kFinish); !status.ok())
      return failed(std::move(status));
    if (setup_.result == HookResult::kZeros) {
      const Tensor& sum = kept.result;
      const auto bytes = static_cast<std::size_t>(sum.elements()) * size_of(sum.dtype());
      sum.device().fill_zero(sum.device().current_stream(), sum.data(), bytes);
    }
    return std::move(kept.result);
  }

 private:
  // What the hook keeps for a bucket between its two calls.
  struct OfBucket {
    Tensor result;
    FutureThread::Flag is_complete;  // null if the hook has promised no future
  };
  OfBucket& of(const HookBucket& bucket) {
    return results_[static_cast<std::size_t>(bucket.index())];
  }

  void check_order(const HookBucket& bucket) {
    // The first bucket begins a pass, also after a failed pass or a reset.
    const bool begins = bucket.is_first();
    if (begins) next_ = 0;
    expect(setup_.has_gaps ? bucket.index() >= next_ : bucket.index() == next_,
           "its buckets do not come in order");
    expect(begins || !was_last_, "a bucket comes after the last one");
    was_last_ = bucket.is_last();
    next_ = bucket.index() + 1;
  }

  // The factor is 1/N, rounded to the dtype of the bucket.
  static void check_factor(const HookBucket& bucket) {
    expect(std::abs(bucket.factor() * bucket.ranks() - 1) < 0.01,
           "its factor is not one over its number of ranks");
  }

  static void check_views(const HookBucket& bucket) {
    const Tensor& flat = bucket.flat();
    const std::byte* end = flat.data();
    std::int64_t elements = 0;
    for (const Tensor& view : bucket.views()) {
      expect(view.storage() == flat.storage() && view.dtype() == flat.dtype(),
             "a view lies elsewhere than its bucket");
      expect(view.shape().is_dense(), "a view is not in the strides of a parameter");
      expect(view.data() >= end, "views overlap");
      end = view.data() + view.elements() * static_cast<std::int64_t>(size_of(view.dtype()));
      elements += view.elements();
    }
    expect(end == flat.data() + flat.elements() * static_cast<std::int64_t>(size_of(flat.dtype())),
           "views do not reach to the bucket's end");
    expect(elements <= flat.elements(), "the views are larger than the bucket");
  }

  static Result<Tensor> copy_of(const Tensor& tensor) {
    Device& device = tensor.device();
    Result<Tensor> copy = Tensor::empty(device, tensor.dtype(), tensor.shape());
    if (copy) device.copy(device.current_stream(), tensor, *copy);
    return copy;
  }

  // Copies the bucket, scaled for a mean, and starts the sum of the copy.
  Status start_sum(HookBucket& bucket, OfBucket& kept) {
    const Tensor& flat = bucket.flat();
    Result<Tensor> copy = setup_.result == HookResult::kMean
                              ? Tensor::empty(flat.device(), flat.dtype(), flat.shape())
                              : copy_of(flat);
    if (!copy) return copy.error();
    if (setup_.result == HookResult::kMean) {
      const Transfer transfer{&flat, copy->data(), &flat.shape()};
      Device& device = flat.device();
      device.pack_bucket(device.current_stream(), {&transfer, 1}, bucket.factor());
    }
    kept.result = std::move(*copy);
    return setup_.result == HookResult::kLocal ? Status() : bucket.all_reduce(kept.result);
  }

  Status promise(HookBucket& bucket, OfBucket& kept) {
    if (setup_.completion == HookCompletion::kImmediate) return {};
    Status outcome = environment_.visit_hook(HookCall::kFuture);
    kept.is_complete = std::make_shared<platform::Atomic<bool>>(false);
    if (outcome.code() == Code::kTimeout) {  // a future that never ends (never_ends())
      static_cast<void>(bucket.future());
      return {};
    }
    futures_.promise(bucket.future(), kept.is_complete, std::move(outcome), bucket.is_last());
    return {};
  }

  Status run_backward(const HookBucket& bucket) {
    switch (setup_.backward) {
      case HookBackward::kNone:
        break;
      case HookBackward::kOwn:
        return run_own_backward(bucket);
      case HookBackward::kTaken:
        return reach_taken_gradient(bucket);
      case HookBackward::kAll:
        for (const Ref<Parameter>& parameter : setup_.parameters)
          LOCKSTEP_RETURN_IF_ERROR(reach_without_gradient(parameter));
        break;
    }
    return {};
  }

  // Runs a backward of a graph that has nothing to do with the reducer, and checks that it brings
  // the gradient of that graph.
  Status run_own_backward(const HookBucket& bucket) {
    const Tensor& view = bucket.views().front();
    const Ref<Parameter> own =
        make_ref<Parameter>("own", view.device(), view.dtype(), view.shape(), true,
                            engine_.next_sequence(), Parameter::Gradients::kDense);
    Result<Tensor> gradient = copy_of(view);
    if (!gradient) return gradient.error();
    const Edge root{Ref<Node>(new OwnNode(engine_, own)), 0};
    LOCKSTEP_RETURN_IF_ERROR(engine_.backward({&root, 1}, {&*gradient, 1}, false));
    expect(own->grad().defined(), "a backward of its own has brought no gradient");
    const auto bytes = static_cast<std::size_t>(view.elements()) * size_of(view.dtype());
    const bool is_right =
        !view.device().is_host() || std::memcmp(own->grad().data(), gradient->data(), bytes) == 0;
    expect(is_right, "a backward of its own has brought another gradient");
    return {};
  }

  // Runs a backward that must be refused, because the result of the pass would overwrite what it
  // adds (P1).
  Status reach_taken_gradient(const HookBucket& bucket) {
    Result<Tensor> gradient = copy_of(bucket.views().back());
    if (!gradient) return gradient.error();
    const std::size_t last = bucket.parameters().back();
    expect(last < setup_.parameters.size(), "the hook gets a parameter that is not there");
    const Edge root{setup_.parameters[last], 0};
    const Status status = engine_.backward({&root, 1}, {&*gradient, 1}, false);
    expect(status.code() == Code::kReadyTwice,
           "a backward to a gradient that the pass has taken is not refused");
    return {};
  }

  // Runs a backward with an undefined gradient, which adds nothing and is no use (G6). It may be
  // refused or not: the schedule decides whether the pass has taken the parameter's gradient.
  Status reach_without_gradient(const Ref<Parameter>& parameter) {
    if (!parameter->requires_grad()) return {};
    const Edge root{parameter, 0};
    const Tensor none;
    const Status status = engine_.backward({&root, 1}, {&none, 1}, false);
    expect(status.ok() || status.code() == Code::kReadyTwice,
           "a backward without a gradient fails");
    return {};
  }

  const UserHookSetup setup_;
  Engine& engine_;
  RankEnvironment& environment_;
  int next_ = 0;
  bool was_last_ = false;
  std::vector<OfBucket> results_;  // by bucket
  FutureThread futures_;
};

}  // namespace

std::shared_ptr<CommunicationHook> make_user_hook(UserHookSetup setup, Engine& engine,
                                                  RankEnvironment& environment) {
  return std::make_shared<UserHook>(std::move(setup), engine, environment);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
