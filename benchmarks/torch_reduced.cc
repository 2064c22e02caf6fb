#include "benchmarks/torch_reduced.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <c10d/FileStore.hpp>
#include <c10d/ProcessGroupGloo.hpp>
#include <c10d/logger.hpp>
#include <c10d/reducer.hpp>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

namespace lockstep::benchmarks {
namespace {

// Our own nodes have the same names.
using TorchNode = torch::autograd::Node;
using torch::autograd::variable_list;

constexpr std::chrono::seconds kTimeout{120};

template <class Call>
Status caught(Call call) {
  try {
    call();
    return {};
  } catch (const c10::Error& error) {
    return Status(Code::kTransport, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return Status(Code::kTransport, error.what());
  }
}

using Accumulators = std::vector<std::shared_ptr<TorchNode>>;

struct Members {
  explicit Members(const Workload& workload) {
    for (const std::int64_t elements : workload.parameters) {
      // Nobody reads the values of the parameters, so they use no memory.
      at::Tensor parameter = at::empty({elements}, at::kFloat);
      parameter.set_requires_grad(true);
      accumulators.push_back(torch::autograd::impl::grad_accumulator(parameter));
      parameters.push_back(std::move(parameter));
    }
  }
  std::vector<at::Tensor> parameters;
  Accumulators accumulators;
};

// Does what the engine does after an accumulator, without the engine. This is the cheapest way to
// call a hook.
class HookNode final : public TorchNode {
 public:
  explicit HookNode(const Accumulators& accumulators) : accumulators_(accumulators) {
    add_input_metadata(at::empty({1}, at::kFloat));
  }
  variable_list apply(variable_list&&) override {
    for (auto each = accumulators_.rbegin(); each != accumulators_.rend(); ++each)
      for (const auto& hook : (*each)->post_hooks()) (*hook)({}, nothing_);
    return {};
  }

 private:
  const Accumulators& accumulators_;
  const variable_list nothing_ = variable_list(1);
};

// Sends nothing to an accumulator, and its own input to the next node of the chain.
class ChainNode final : public TorchNode {
 public:
  ChainNode(std::shared_ptr<TorchNode> accumulator, std::shared_ptr<TorchNode> next) {
    add_input_metadata(at::empty({1}, at::kFloat));
    add_next_edge({std::move(accumulator), 0});
    if (next) add_next_edge({std::move(next), 0});
  }
  variable_list apply(variable_list&& incoming) override {
    variable_list out(num_outputs());
    if (out.size() > 1) out[1] = std::move(incoming[0]);
    return out;
  }
};

std::shared_ptr<TorchNode> make_chain(const Accumulators& accumulators) {
  std::shared_ptr<TorchNode> root;
  for (const std::shared_ptr<TorchNode>& accumulator : accumulators)
    root = std::shared_ptr<TorchNode>(new ChainNode(accumulator, std::move(root)),
                                      torch::autograd::deleteNode);
  return root;
}

Status run_backward(const std::shared_ptr<TorchNode>& root, const at::Tensor& gradient) {
  return caught([&] {
    torch::autograd::Engine::get_default_engine().execute({{root, 0}}, {gradient}, false, false,
                                                          true);
  });
}

c10::intrusive_ptr<c10d::ProcessGroupGloo> connect(const Place& place, const std::string& name) {
  auto options = c10d::ProcessGroupGloo::Options::create(kTimeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  options->threads = 2;
  auto store = c10::make_intrusive<c10d::FileStore>(place.directory + "/" + name, place.ranks);
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, place.rank, place.ranks, options);
}

// Creates it as the Python class does; see the source of 1.13 (torch/nn/parallel/distributed.py).
std::shared_ptr<c10d::Reducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                            const c10::intrusive_ptr<c10d::ProcessGroupGloo>& group,
                                            bool views) {
  const std::vector<std::size_t> no_limit = {std::numeric_limits<std::size_t>::max() / 2};
  auto [buckets, limits] =
      c10d::compute_bucket_assignment_by_size(parameters, no_limit, {}, {}, c10::nullopt);
  std::reverse(buckets.begin(), buckets.end());
  std::reverse(limits.begin(), limits.end());
  return std::make_shared<c10d::Reducer>(parameters, std::move(buckets), std::move(limits), group,
                                         std::vector<bool>(), c10d::kDefaultBucketBytesCap, false,
                                         views, std::unordered_map<std::size_t, std::string>(),
                                         c10d::kDefaultFirstBucketBytes);
}

}  // namespace

void prepare_torch() {
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
}

struct TorchReduced::State {
  State(const Place& place, const std::string& name, const Workload& workload, bool views)
      : rank(place.rank), members(workload) {
    std::int64_t first = 0;
    for (at::Tensor& parameter : members.parameters) {
      parameter.mutable_grad() = at::empty({parameter.numel()}, at::kFloat);
      firsts.push_back(first);
      first += parameter.numel();
    }
    group = connect(place, name);
    reducer = make_reducer(members.parameters, group, views);
    logger = std::make_shared<c10d::Logger>(reducer);
    reducer->set_logger(logger);
  }

  const int rank;
  Members members;
  std::vector<std::int64_t> firsts;  // the first element in the model, by parameter
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;  // destroyed first
  Backward backward = Backward::kHooks;
  const at::Tensor gradient = at::ones({1}, at::kFloat);
  std::shared_ptr<TorchNode> root;
};

TorchReduced::TorchReduced(std::unique_ptr<State> state) : state_(std::move(state)) {}
TorchReduced::~TorchReduced() = default;

Result<std::unique_ptr<TorchReduced>> TorchReduced::create(const Place& place,
                                                           const std::string& name,
                                                           const Workload& workload, bool views) {
  std::unique_ptr<State> state;
  const Status status =
      caught([&] { state = std::make_unique<State>(place, name, workload, views); });
  if (!status.ok()) return failed(status);
  return std::unique_ptr<TorchReduced>(new TorchReduced(std::move(state)));
}

void TorchReduced::set_backward(Backward backward) { state_->backward = backward; }

Status TorchReduced::prepare(const Values& values) {
  return caught([&] {
    for (std::size_t i = 0; i < state_->firsts.size(); ++i) {
      const at::Tensor& gradient = state_->members.parameters[i].grad();
      values.fill(state_->rank, state_->firsts[i], gradient.numel(), gradient.data_ptr<float>());
    }
    state_->reducer->prepare_for_forward();
    state_->reducer->rebuild_buckets();
    state_->reducer->prepare_for_backward({});
    const Accumulators& accumulators = state_->members.accumulators;
    state_->root =
        state_->backward == Backward::kChain
            ? make_chain(accumulators)
            : std::shared_ptr<TorchNode>(new HookNode(accumulators), torch::autograd::deleteNode);
  });
}

Status TorchReduced::step() { return run_backward(state_->root, state_->gradient); }

std::uint64_t TorchReduced::wrong(const Values& values) const {
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < state_->firsts.size(); ++i) {
    const at::Tensor& gradient = state_->members.parameters[i].grad();
    wrong += values.not_average(state_->firsts[i], gradient.numel(), gradient.data_ptr<float>());
  }
  return wrong;
}

float* TorchReduced::first_result() {
  return state_->members.parameters.front().grad().data_ptr<float>();
}

struct TorchBareChain::State {
  explicit State(const Workload& workload) : members(workload) {}
  Members members;
  const at::Tensor gradient = at::ones({1}, at::kFloat);
  std::shared_ptr<TorchNode> root;
};

TorchBareChain::TorchBareChain(const Workload& workload)
    : state_(std::make_unique<State>(workload)) {}
TorchBareChain::~TorchBareChain() = default;

Status TorchBareChain::prepare(const Values&) {
  return caught([&] { state_->root = make_chain(state_->members.accumulators); });
}

Status TorchBareChain::step() { return run_backward(state_->root, state_->gradient); }

}  // namespace lockstep::benchmarks
